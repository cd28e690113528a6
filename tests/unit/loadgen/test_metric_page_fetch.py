"""A metric page is fetched where its server says that it is, and nowhere else."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from servebench.core.target import parse_target
from servebench.loadgen.scrape.pages import PageError, fetch

MOVED = {
    "/metrics": "/metrics/",
    "/x/metrics?m=1": "page?m=2",
    "/loop": "/loop",
    "/away": "http://198.18.0.1/metrics",
    "/nowhere": None,
}


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path in {"/metrics/", "/x/page?m=2"}
        self.send_response(200 if found else 307)
        if not found and (location := MOVED[self.path]) is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(f"up 1 {self.path}".encode() if found else b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("asked", "page"), [("/metrics", "/metrics/"), ("/x/metrics?m=1", "/x/page?m=2")])
def test_a_page_that_moved_on_its_server_is_found(address: str, asked: str, page: str) -> None:
    assert fetch(parse_target(address + asked)) == f"up 1 {page}"


@pytest.mark.parametrize(
    ("asked", "why"),
    [("/loop", "it redirects more than 3 times"), ("/away", "it answers 307"), ("/nowhere", "it answers 307")],
)
def test_a_page_that_leads_in_circles_or_away_is_none(address: str, asked: str, why: str) -> None:
    with pytest.raises(PageError, match=why):
        fetch(parse_target(address + asked))
