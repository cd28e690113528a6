# ruff: noqa
# mypy: ignore-errors
# A yardstick: kept as it was when the figures it is compared with were measured.
"""Client-side records (CLI1): one per request, t per SSE event or per recv(), CLOCK_MONOTONIC ns."""

import struct
from array import array

HDR = struct.Struct("<II64sqq")
MAGIC = 0x31494C43


class Writer:
    def __init__(self, path):
        self.f = open(path, "wb") if path else None

    def add(self, rid, t_send, t_end, times):
        if self.f:
            self.f.write(HDR.pack(MAGIC, len(times), rid.encode(), t_send, t_end))
            array("q", times).tofile(self.f)

    def close(self):
        if self.f:
            self.f.close()


def read(path):
    """{id: (t_send, t_end, times)}"""
    d = open(path, "rb").read()
    off, out = 0, {}
    while off < len(d):
        m, n, rid, a, b = HDR.unpack_from(d, off)
        assert m == MAGIC
        off += HDR.size
        out[rid.rstrip(b"\0").decode()] = (a, b, struct.unpack_from(f"<{n}q", d, off))
        off += 8 * n
    return out
