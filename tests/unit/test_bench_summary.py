"""README's cost table says what the benches printed, and nothing that they did not."""

from tests.bench.summary import table

PRINTED = """\
 17:52:15 up  4:51,  0 user,  load average: 0.12, 0.10, 14.0
p256 floor         7.93 us/token    9,050 tok/s   gap error 0.7 / 3.8 us, alone nan
p256: 1.51 x the floor
p512: 1.46 x the floor
p256 servebench  17.70 us/token   12,356 tok/s   gap error 0.3 / 4.1 us, alone 3.4   ttft error 42 / 512 us, until \
the server read 11 / 507   worker 102 MiB   hub_over_idle_p99_ms 0.6  hub_worst_ms 1.7
p256 servebench  18.70 us/token   12,300 tok/s   gap error 0.3 / 4.3 us, alone 3.6   ttft error 43 / 513 us, until \
the server read 11 / 507   worker 104 MiB   hub_over_idle_p99_ms 0.6  hub_worst_ms 1.7
p256: 17.7 us/token = 3.22 x floor-c, 1.92 x floor-py; start and end 4.9 s; worker 16.3 us (1.6 s)
dispatch lag p99 at 1000/s: 512 us = 0.91 x the floor
send lag p99 at 1000/s: 739 us = 1.31 x the floor
 18:52:15 up  4:51,  0 user,  load average: 0.82, 0.10, 14.0
"""


def test_the_table_has_a_row_for_each_bench_that_was_printed() -> None:
    rows = [line.split(" | ")[1] for line in table(PRINTED).splitlines() if line.startswith("| ") and "`" in line]
    assert rows == [
        "p256 1.51 x floor-py; p512 1.46 x floor-py",
        "p256 1.92 x floor-py, 3.22 x floor-c",
        "p256 16.3 us, 1.6 s",
        "p256 3.6 us; 43 / 513 us",
        "dispatch 512 us, 0.91 x a bare timerfd loop; send 739 us, 1.31 x a bare timerfd loop",
        "p256 104 MiB",
    ]
    assert "The load average was 0.12 before the first run and 0.82 after the last." in table(PRINTED)
