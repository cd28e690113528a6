"""A small retrieval service for rag.py: the passages that share most words with a question.

    python locustfiles/retrieval.py [PORT [MS]]

GET /search?q=... answers {"passages": [...]}, the best two. Only the standard library; one thread a request. With MS a
search takes so many milliseconds, one after the other: an index on one core, which saturates before the model does.
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, urlsplit

PASSAGES = (
    "An open-loop load generator plans arrivals before they happen and never waits for answers.",
    "Time to first token is measured from the first byte sent to the first event that carries a token.",
    "A prefix cache keeps the attention keys of prompts that were seen before, so that they are not computed again.",
    "Continuous batching lets new requests join a batch while others are still being answered.",
    "Goodput counts answers that are accepted and within the objectives.",
)


def best(question: str, count: int = 2) -> list[str]:
    """Return the passages that share most words with a question, the first of equals first."""
    wanted = set(re.findall(r"[a-z]+", question.lower()))
    return sorted(PASSAGES, key=lambda text: -len(wanted & set(re.findall(r"[a-z]+", text.lower()))))[:count]


class Search(BaseHTTPRequestHandler):
    """Answers searches."""

    protocol_version = "HTTP/1.1"
    search_s = 0.0
    index = Lock()

    def do_GET(self) -> None:
        """Answer one search."""
        question = parse_qs(urlsplit(self.path).query).get("q", [""])[0]
        with self.index:
            time.sleep(self.search_s)
            body = json.dumps({"passages": best(question)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing about each request."""


if __name__ == "__main__":
    Search.search_s = float(sys.argv[2]) / 1e3 if len(sys.argv) > 2 else 0.0
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9100), Search).serve_forever()
