# ruff: noqa
# mypy: ignore-errors
# A yardstick: kept as it was when the figures it is compared with were measured.
"""Read mockserver's ground-truth log. Times are CLOCK_MONOTONIC ns, the clock of Python's
time.perf_counter_ns() and time.monotonic_ns() on Linux."""

import struct, sys
from collections import namedtuple

HDR = struct.Struct("<IIQ64siiii6q")
Rec = namedtuple("Rec", "seq id ntok aborted per_chunk backlog conn t_accept t_first t_recv t_role t_done times")


def read(path):
    """All records, in the order the requests ended."""
    out = []
    with open(path, "rb") as f:
        data = f.read()
    off = 0
    while off + HDR.size <= len(data):
        magic, n, seq, rid, *rest = HDR.unpack_from(data, off)
        assert magic == 0x3156534D, "not a mockserver log"
        off += HDR.size
        if off + 8 * n > len(data):
            break
        out.append(Rec(seq, rid.rstrip(b"\0").decode("latin-1"), *rest, struct.unpack_from(f"<{n}q", data, off)))
        off += 8 * n
    return out


def pct(xs, *ps):
    xs = sorted(xs)
    return [xs[min(len(xs) - 1, int(len(xs) * p / 100))] if xs else float("nan") for p in ps]


def summary(recs):
    """TTFT and gap percentiles of the truth, in ms."""
    ok = [r for r in recs if not r.aborted and r.times]
    ttft = [(r.times[0] - r.t_recv) / 1e6 for r in ok]
    gaps = [(b - a) / 1e6 for r in ok for a, b in zip(r.times, r.times[1:])]
    return {
        "n": len(ok),
        "aborted": sum(r.aborted for r in recs),
        "tokens": sum(min(r.ntok, len(r.times) * r.per_chunk) for r in recs),
        "ttft_p50": pct(ttft, 50)[0],
        "ttft_p99": pct(ttft, 99)[0],
        "gap_p50": pct(gaps, 50)[0],
        "gap_p99": pct(gaps, 99)[0],
        "gap_max": max(gaps, default=float("nan")),
        "span_s": (max(r.t_done for r in ok) - min(r.t_recv for r in ok)) / 1e9 if ok else 0,
    }


if __name__ == "__main__":
    for k, v in summary(read(sys.argv[1])).items():
        print(f"{k:9} {v:.4f}" if isinstance(v, float) else f"{k:9} {v}")
