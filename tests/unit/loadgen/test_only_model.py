"""The model that a server lists, and servers that are none."""

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from servebench.core.errors import InputError
from servebench.core.target import parse_target
from servebench.inquiry.secrets import Secrets
from servebench.loadgen.master.interactive import interactive_workload
from servebench.loadgen.master.models import only_model


@pytest.fixture
def no_http() -> Iterator[int]:
    """Give a port that greets as a mail server does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"220 mail.example ESMTP\r\n")
                connection.recv(1000)

        thread = Thread(target=greet, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


def test_a_server_of_another_protocol_is_refused_with_its_address(no_http: int) -> None:
    with pytest.raises(InputError, match=f"127.0.0.1:{no_http} does not speak HTTP"):
        only_model(parse_target(f"http://127.0.0.1:{no_http}"), interactive_workload(), Secrets())
