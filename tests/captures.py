"""Know how a captured answer lies in a file: head and body as `curl -i -N` shows them, chunk framing removed."""

import re
from pathlib import Path
from typing import NamedTuple

from servebench.core.records import Answer
from servebench.wire.endpoint import Endpoint
from servebench.wire.timeline import End, Timeline


class Capture(NamedTuple):
    """One capture: status line and headers, the body, and whether the client gave up before its end."""

    status: int
    head: bytes
    body: bytes
    aborted: bool

    @property
    def content_type(self) -> bytes:
        found = re.search(rb"(?i)^content-type: *([^;\r\n]+)", self.head, re.MULTILINE)
        assert found
        return found.group(1)

    def framed(self) -> bytes:
        """Return the response with its chunk framing put back, events in chunks of odd sizes."""
        if not re.search(rb"(?i)^transfer-encoding: *chunked", self.head, re.MULTILINE):
            return self.head + self.body
        chunks = [self.body[start : start + 97] for start in range(0, len(self.body), 97)]
        framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
        return self.head + framed + (b"" if self.aborted else b"0\r\n\r\n")


def load_capture(path: Path) -> Capture:
    head, body = re.split(rb"(?<=\r\n)\r\n", path.read_bytes(), maxsplit=1)
    body, aborted = re.subn(rb"curl: \(28\).*\n?\Z", b"", body)
    return Capture(int(head.split()[1]), head + b"\r\n", body, bool(aborted))


def read_capture(capture: Capture, endpoint: Endpoint, step: int, *, stream: bool = True) -> tuple[Answer, Timeline]:
    """Feed a capture in reads of `step` bytes; the stamp of a read is the place where it starts."""
    timeline = Timeline(endpoint, stream=stream, keep_text=True)
    data = capture.framed()
    for start in range(0, len(data), step):
        timeline.feed(data[start : start + step], start, -1)
    return timeline.finish(End.CANCELLED if capture.aborted else End.COMPLETE, 10**9), timeline
