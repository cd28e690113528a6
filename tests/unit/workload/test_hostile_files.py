"""Files that no reader should fall over: one message with file, line, value and way out, or a stated reading."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from servebench.core.errors import InputError, SpecError
from servebench.workload.load import load_workload
from servebench.workload.schedule import Schedule, plan

HEAD = b"timestamp,input_length,output_length\n"
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
REPLAY = """\
name: h
prompts: {{source: {{kind: mt-bench}}, input_tokens: {{from: trace}}, output_tokens: {{from: trace}}}}
load: {{kind: replay, phases: [{{name: r, shape: replay, trace: {{kind: {kind}, path: {path}}}}}]}}
"""
OPEN = """\
name: h
prompts: {{source: {{kind: {kind}, path: {path}}}}}
load: {{kind: open, phases: [{{name: r, shape: steady, rate_per_s: 2, duration: 5s}}]}}
"""


def planned(folder: Path, text: str, kind: str, data: bytes, name: str) -> Schedule:
    (folder / name).write_bytes(data)
    path = folder / "w.yaml"
    path.write_text(text.format(kind=kind, path=name), encoding="utf-8")
    return plan(load_workload(path))


def refused(folder: Path, text: str, kind: str, data: bytes, name: str) -> str:
    with pytest.raises((SpecError, InputError)) as caught:
        planned(folder, text, kind, data, name)
    assert caught.value.exit_code == 2
    assert name in str(caught.value)
    return str(caught.value)


TRACES: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "empty": ("csv", b"", ("no usable rows",)),
    "only a header": ("csv", HEAD.strip(), ("no usable rows",)),
    "cr only": ("csv", (HEAD + b"0,5,5\n").replace(b"\n", b"\r"), ("line 1", "CR alone", "tr ")),
    "utf-16": ("csv", (HEAD + b"0,5,5\n").decode().encode("utf-16"), ("line 1", "UTF-16", "UTF-8")),
    "zeros": ("csv", b"\0" * 1000, ("line 1", "no text")),
    "zip": ("csv", b"PK\x03\x04" + b"x" * 50, ("zip", "unpack")),
    "packed twice": ("csv", gzip.compress(gzip.compress(HEAD + b"0,5,5\n")), ("packed twice",)),
    "cut gzip": ("csv", gzip.compress(HEAD + b"0,5,5\n" * 5000)[:60], ("ended before",)),
    "tabs": ("csv", HEAD.replace(b",", b"\t") + b"0\t5\t5\n", ("line 1", "tabs", "commas")),
    "semicolons": ("csv", HEAD.replace(b",", b";") + b"0;5;5\n", ("semicolons", "commas")),
    "no header": ("csv", b"0,5,5\n", ("line 1", "column missing", "'0', '5', '5'")),
    "a column twice": ("csv", b"timestamp,input_length,input_length,output_length\n0,1,2,3\n", ("line 1", "twice")),
    "html": ("csv", b"<!DOCTYPE html><html>404</html>", ("line 1", "column missing", "DOCTYPE")),
    "negative": ("csv", HEAD + b"0,5,5\n1,-5,5\n", ("line 3", "input_length", "'-5'")),
    "a fraction": ("csv", HEAD + b"0,5.5,5\n", ("line 2", "'5.5'")),
    "exponent": ("csv", HEAD + b"0,1e2,5\n", ("line 2", "'1e2'")),
    "thousands": ("csv", HEAD + b'0,"1,000",5\n', ("line 2", "'1,000'")),
    "underscores": ("csv", HEAD + b"1_0,5,5\n", ("line 2", "timestamp", "'1_0'")),
    "other digits": ("csv", HEAD + "٣,5,5\n".encode(), ("line 2", "timestamp", "٣")),
    "not a number": ("csv", HEAD + b"nan,5,5\n", ("line 2", "'nan'")),
    "infinite": ("csv", HEAD + b"inf,5,5\n", ("line 2", "'inf'")),
    "too many": ("csv", HEAD + b"0,99999999999999999999,5\n", ("line 2", "2147483647")),
    "far apart": ("csv", HEAD + b"-9e9,5,5\n9e9,5,5\n", ("line 2", "line 3", "'9e9'")),
    "milliseconds": ("csv", HEAD + b"1710000000000,5,5\n", ("line 2", "time in seconds")),
    "a nul": ("csv", HEAD + b"0,5\0,5\n", ("line 2", "x00")),
    "a long line": ("csv", HEAD + b"0,5," + b"9" * 3_000_000 + b"\n", ("line 2", "999...")),
    "a short row": ("csv", HEAD + b"0,5\n", ("line 2", "too few fields")),
    "the year 9999": ("azure", AZURE + b"9999-12-31 23:59:59,1,5\n2024-05-10 00:00:00,1,2\n", ("line 2", "9999")),
    "february 30": ("azure", AZURE + b"2024-02-30 00:00:00,1,5\n", ("line 2", "2024-02-30")),
    "seconds for dates": ("azure", AZURE + b"1710000000,1,5\n", ("line 2", "is no time such as")),
    "other digits in a date": ("azure", AZURE + "\uff12024-02-03 00:00:00,1,5\n".encode(), ("line 2",)),
    "an array": ("mooncake", b"[" + ROW.strip() + b"]", ("line 1", "a JSON object is wanted")),
    "deep": ("mooncake", b"[" * 100_000, ("line 1", "nested too deeply")),
    "a text": ("mooncake", ROW.replace(b"600", b'"600"'), ("line 1", "input_length")),
    "a truth value": ("mooncake", ROW.replace(b"600", b"true"), ("line 1", "true")),
    "NaN": ("mooncake", ROW.replace(b"600", b"NaN"), ("line 1", "no JSON")),
    "blocks of ragpulse": ("mooncake", ROW.replace(b"[0, 1]", b"{}"), ("line 1", "hash_ids", "kind: ragpulse")),
    "two rows on a line": ("mooncake", ROW.strip() + ROW, ("line 1", "no JSON")),
    "gzip with another checksum": ("csv", gzip.compress(HEAD + b"0,5,5\n")[:-8] + bytes(8), ("CRC",)),
    "gzip and more": ("csv", gzip.compress(HEAD + b"0,5,5\n") + b"junk", ("cannot read", "gzip")),
    "a quoted line end": ("csv", HEAD.replace(b"\n", b",note\n") + b'0,5,5,"a\nb"\n', ("line 3", "too few fields")),
    "hexadecimal": ("csv", HEAD + b"0,0x10,5\n", ("line 2", "'0x10'")),
    "a day of 24:00": ("azure", AZURE + b"2016-12-31 24:00:00,1,1\n", ("line 2", "24:00:00")),
    "an american date": ("azure", AZURE + b"05/10/2024 00:00,1,1\n", ("line 2", "05/10/2024")),
    "a zone that is none": ("azure", AZURE + b"2024-05-10 00:00:00+99:99,1,1\n", ("line 2", "+99:99")),
    "a zone by name": ("azure", AZURE + b"2024-05-10 00:00:00 UTC,1,1\n", ("line 2", "UTC")),
    "picoseconds": ("azure", AZURE + b"2024-05-10 00:00:00.123456789012,1,1\n", ("line 2", "123456789012")),
    "no row with output": ("csv", HEAD + b"5,1,0\n" * 10, ("no usable rows", "10 rows")),
    "a time as text": ("mooncake", ROW.replace(b"0,", b'"0",', 1), ("line 1", "timestamp", '"0"')),
    "a time beyond all": ("mooncake", ROW.replace(b"0,", b"1e308,", 1), ("line 1", "1e+308")),
    "a block below zero": ("mooncake", ROW.replace(b"[0, 1]", b"[-1]"), ("line 1", "hash_ids", "[-1]")),
    "a block of 70 bits": ("mooncake", ROW.replace(b"[0, 1]", b"[1180591620717411303424]"), ("line 1", "hash_ids")),
    "a parquet file": ("csv", b"PAR1" + b"\x15\0" * 100, ("line 1", "no text")),
    "lfs": ("mooncake", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 5\n", ("git lfs pull",)),
}


@pytest.mark.parametrize(("kind", "data", "words"), list(TRACES.values()), ids=list(TRACES))
def test_a_trace_that_is_none_is_refused_with_its_line_and_value(
    tmp_path: Path, kind: str, data: bytes, words: tuple[str, ...]
) -> None:
    message = refused(tmp_path, REPLAY, kind, data, "t.data")
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    "bad", [b"x,1,1\n", b"1,-1,1\n", b"nan,1,1\n", b"1,1.5,1\n", b"9e9,1,1\n"], ids=lambda row: row.decode().strip()
)
def test_a_bad_row_behind_a_large_file_is_told_with_its_line(tmp_path: Path, bad: bytes) -> None:
    rows = b"".join(b"%d.%02d,100,10\n" % divmod(k, 100) for k in range(280_000))
    assert len(rows) > 4_000_000
    assert "line 280002" in refused(tmp_path, REPLAY, "csv", HEAD + rows + bad, "t.csv")


GOOD: dict[str, tuple[bytes, list[float], list[int]]] = {
    "bom and crlf": (b"\xef\xbb\xbf" + (HEAD + b"0,5,6\n1,7,8\n").replace(b"\n", b"\r\n"), [0, 1], [5, 7]),
    "another order": (b"output_length,timestamp,input_length\n7,0,3\n8,1,4\n", [0, 1], [3, 4]),
    "unsorted": (HEAD + b"5,1,1\n0,2,2\n3,3,3\n", [0, 3, 5], [2, 3, 1]),
    "before zero": (HEAD + b"-5,5,5\n1,6,6\n", [0, 6], [5, 6]),
    "gzip by another name": (gzip.compress(HEAD + b"0,5,5\n"), [0], [5]),
    "quoted comma": (HEAD.replace(b"\n", b",note\n") + b'0,5,5,"a,b"\n', [0], [5]),
    "latin-1 in another column": (HEAD.replace(b"\n", b",note\n") + b"0,5,5,caf\xe9\n", [0], [5]),
    "blank lines": (HEAD + b"\n0,5,5\n\n\n1,6,6\n\n", [0, 1], [5, 6]),
    "exponents in times": (HEAD + b"1e3,5,5\n1.0015e3,6,6\n", [0, 1.5], [5, 6]),
}


@pytest.mark.parametrize(("data", "seconds", "tokens"), list(GOOD.values()), ids=list(GOOD))
def test_what_is_only_odd_is_read(tmp_path: Path, data: bytes, seconds: list[float], tokens: list[int]) -> None:
    schedule = planned(tmp_path, REPLAY, "csv", data, "t.csv.gz")
    assert [due / 1e9 for due in schedule.due_ns.tolist()] == seconds
    assert schedule.input_tokens.tolist() == tokens


def test_rows_that_generated_nothing_are_counted_also_before_the_first_that_is_kept(tmp_path: Path) -> None:
    schedule = planned(tmp_path, REPLAY, "csv", HEAD + b"0,5,0\n1,0,5\n4,5,5\n6,5,0\n9,5,5\n", "t.csv")
    assert [due / 1e9 for due in schedule.due_ns.tolist()] == [0, 5]
    assert sum(count for name, count in schedule.notes.items() if "left_out" in name) == 3


PROMPTS: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "empty": ("jsonl", b"", ("no prompt",)),
    "blank lines": ("jsonl", b"\n \n", ("no prompt",)),
    "empty prompt": ("jsonl", b'{"prompt": "a"}\n{"prompt": ""}\n', ("line 2", "prompt")),
    "a number": ("jsonl", b'{"prompt": 5}\n', ("line 1", "prompt")),
    "half a character": ("jsonl", b'{"prompt": "a"}\n{"prompt": "\\ud800"}\n', ("line 2", "surrogate")),
    "not utf-8": ("jsonl", b'{"prompt": "a"}\n{"prompt": "caf\xe9"}\n', ("line 2", "UTF-8")),
    "utf-16": ("jsonl", '{"prompt": "a"}\n'.encode("utf-16"), ("line 1",)),
    "deep": ("jsonl", b'{"prompt":' + b"[" * 100_000, ("line 1", "deep")),
    "an array": ("jsonl", b'[{"prompt": "a"}]', ("line 1", "array", "jq")),
    "two on a line": ("jsonl", b'{"prompt": "a"}{"prompt": "b"}\n', ("line 1",)),
    "cut": ("jsonl", b'{"prompt": "a', ("line 1",)),
    "a number of 5,000 digits": ("jsonl", b'{"prompt": "a", "n": ' + b"9" * 5000 + b"}\n", ("line 1", "4300 digits")),
    "a bom in the midst": ("jsonl", b'{"prompt": "a"}\n\xef\xbb\xbf{"prompt": "b"}\n', ("line 2", "BOM")),
    "not a number": ("jsonl", b'{"prompt": NaN}\n', ("line 1", "NaN")),
    "null": ("jsonl", b"null\n", ("line 1", "JSON object")),
    "over several lines": ("jsonl", b'{\n  "prompt": "a"\n}\n', ("line 1", "no JSON")),
    "a table": ("jsonl", b"prompt,answer\na,b\n", ("line 1", "no JSON")),
    "cr only": ("jsonl", b'{"prompt": "a"}\r{"prompt": "b"}\r', ("line 1", "Extra data")),
    "messages": ("jsonl", b'{"messages": [{"role": "user", "content": "a"}]}\n', ("line 1", "prompt", "messages")),
    "a list": ("jsonl", b'{"prompt": ["a"]}\n', ("line 1", '["a"]')),
    "checks that are none": ("jsonl", b'{"prompt": "a", "accept": {}}\n', ("line 1", "accept", "list")),
    "a pattern that is none": ("jsonl", b'{"prompt": "a", "accept": [{"regex": "("}]}\n', ("line 1", "accept[0]")),
    "cut gzip": ("jsonl", gzip.compress(b'{"prompt": "a"}\n' * 999)[:50], ("ended before",)),
    "a tree too deep": ("oasst", b'{"prompt": {"text": "a", "replies": ' + b"[" * 5000, ("line 1", "deep")),
    "no task": ("humaneval", b'{"task_id": "x"}\n', ("line 1", "prompt", "task_id")),
    "no turns": ("mt-bench", b'{"turns": []}\n', ("line 1", "turns")),
    "blank text": ("text", b"\n \n", ("no prompt",)),
    "more behind an array": (
        "sharegpt",
        b'[{"conversations": [{"from": "human", "value": "a"}]}] junk',
        ("line 1", "more"),
    ),
    "a huge number in an array": ("sharegpt", b'[{"n": ' + b"9" * 5000 + b"}]", ("line 1", "number")),
    "an object": ("sharegpt", b"{}", ("t.data",)),
    "an empty array": ("sharegpt", b"[]", ("no prompt",)),
    "a cut array": ("sharegpt", b'[{"conversations": [', ("t.data",)),
}


@pytest.mark.parametrize(("kind", "data", "words"), list(PROMPTS.values()), ids=list(PROMPTS))
def test_a_prompt_file_that_is_none_is_refused_with_its_line(
    tmp_path: Path, kind: str, data: bytes, words: tuple[str, ...]
) -> None:
    message = refused(tmp_path, OPEN, kind, data, "t.data")
    assert [word for word in words if word not in message] == []


PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (lambda path: path.mkdir(), "is a folder; a file is wanted"),
    "a pipe": (os.mkfifo, "is a pipe or device"),
    "a link to itself": (lambda path: path.symlink_to(path), "is a link to nothing, or to itself"),
    "a link to nothing": (lambda path: path.symlink_to(path.with_name("gone")), "is a link to nothing"),
    "nothing": (lambda _: None, "there is no file"),
}


@pytest.mark.parametrize("text", [REPLAY, OPEN], ids=["trace", "prompts"])
@pytest.mark.parametrize(("make", "words"), list(PLACES.values()), ids=list(PLACES))
def test_a_path_that_is_no_file_is_told_as_what_it_is(
    tmp_path: Path, text: str, make: Callable[[Path], object], words: str
) -> None:
    make(tmp_path / "x.data")
    assert words in faulty(tmp_path, text, "x.data")


@pytest.mark.parametrize("text", [REPLAY, OPEN], ids=["trace", "prompts"])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/dev/zero", "is a pipe or device"),
        ("https://host/trace.csv", "is a URL"),
        ("~/trace.csv", "~ is not expanded"),
        ("x" * 5000, "name too long"),
        ("builtin:../../secret", "is not shipped"),
    ],
    ids=["device", "url", "home", "long", "builtin"],
)
def test_a_path_that_cannot_be_one_here_is_refused(tmp_path: Path, text: str, path: str, words: str) -> None:
    message = faulty(tmp_path, text, path)
    assert words in message
    assert len(message) < 1000


def faulty(folder: Path, text: str, name: str) -> str:
    kind = "csv" if text is REPLAY else "jsonl"
    (folder / "w.yaml").write_text(text.format(kind=kind, path=name), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_workload(folder / "w.yaml")
    (fault,) = caught.value.faults
    assert fault.line is not None
    return str(caught.value)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("{shape: steady, rate_per_s: 1, duration: %ss}" % ("9" * 400), "longer than 292 years"),
        ("{shape: steady, rate_per_s: 1, duration: 9999h}", "longer than 366d"),
        ("{shape: steady, rate_per_s: 1e400, duration: 1s}", "finite"),
        ("{shape: steady, rate_per_s: .nan, duration: 1s}", ".nan"),
        ("{shape: steady, rate_per_s: true, duration: 1s}", "not a number"),
        ("{shape: steady, rate_per_s: [5], duration: 1s}", "[5]"),
        ("{shape: steady, rate_per_s: 5, duration: 0s}", "longer than 0"),
        ("{shape: steady, rate_per_s: 5, duration: 1s, arrivals: {process: gamma, cv: 1e200}}", "<= 50"),
        ("{shape: steady, rate_per_s: 5, duration: 1s, arrivals: {process: gamma, cv: 0}}", ">= 0.02"),
        ("{shape: steady, rate_per_s: 5, duration: 1h, arrivals: {process: onoff, on: 1ns, off: 1ns}}", "episodes"),
        ("{shape: steady, rate_per_s: 5, duration: 1s, arrivals: {process: onoff, on: 0s, off: 1s}}", "longer than 0"),
        ("{shape: steady, rate_per_s: 5, duration: 1s, arrivals: {process: mix, clients: []}}", "is empty"),
        ("{shape: steps, rates_per_s: [], duration: 1s}", "is empty"),
        ("{shape: steps, rates_per_s: [1, -1], duration: 1s}", "-1 must be >= 0"),
        ("{shape: ramp, from_per_s: -1, to_per_s: 1, duration: 1s}", "-1 must be >= 0"),
        ("{shape: burst, base_per_s: 1, peak_per_s: 2, every: 2ns, length: 1ns, duration: 1h}", "50,000 periods"),
        ("{shape: burst, base_per_s: 1, peak_per_s: 2, every: 2s, length: 3s, duration: 9s}", "shorter than every"),
        ("{shape: diurnal, mean_per_s: 1, profile: [0, 0], duration: 1s}", "not all of them 0"),
        ("{shape: diurnal, mean_per_s: 1, profile: [1, -1], duration: 1s}", "profile[1]  -1 must be >= 0"),
        ("{shape: diurnal, mean_per_s: 1, profile: m-smal, duration: 1s}", 'profile  "m-smal" is not known'),
        ("{shape: diurnal, mean_per_s: 1, profile: {a: 1}, duration: 1s}", "is not a list"),
        ("{shape: diurnal, mean_per_s: 1, profile: m-small, period: 1ns, duration: 1h}", "2,083 periods"),
        ("{shape: replay, trace: {kind: azure}, speed: 0}", "must be > 0"),
        ("{shape: replay, trace: {kind: azure}, speed: 1e-9, length: 1h}", "speed  1e-09 makes the phase longer"),
        ("{shape: replay, trace: {kind: azure}, speed: 1e-300, length: 1h}", "speed  1e-300 makes the phase longer"),
        ("{shape: replay, trace: {kind: azure}, start: 100h}", "the trace ends at 58m"),
        ("{shape: sine, rate_per_s: 1, duration: 1s}", "did you mean spike?"),
    ],
    ids=lambda value: value[:60],
)
def test_a_phase_that_cannot_be_is_one_fault_with_line_place_and_value(tmp_path: Path, phase: str, words: str) -> None:
    text = f"name: h\nprompts: {{source: {{kind: mt-bench}}}}\nload:\n  kind: open\n  phases:\n    - {phase}\n"
    (tmp_path / "w.yaml").write_text(text.replace("- {", "- {name: a, "), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_workload(tmp_path / "w.yaml")
    (fault,) = caught.value.faults
    assert fault.line == 6
    assert fault.place.startswith("load.phases[0]")
    assert words in str(caught.value)


def test_a_replay_that_starts_behind_its_trace_is_refused_also_where_its_length_is_given(tmp_path: Path) -> None:
    phase = "{name: a, shape: replay, trace: {kind: azure}, start: 1h, length: 1m}"
    text = f"name: h\nprompts: {{source: {{kind: mt-bench}}}}\nload: {{kind: replay, phases: [{phase}]}}\n"
    (tmp_path / "w.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="starts at 1h of builtin:azure-llm-2023-conv, which ends at 58m21s"):
        plan(load_workload(tmp_path / "w.yaml"))


def test_a_workload_file_that_git_lfs_left_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 5\n")
    with pytest.raises(InputError, match="git lfs pull"):
        load_workload(tmp_path / "w.yaml")
