"""How one response ends, told by hand-made responses of few bytes; times are small whole numbers."""

import gzip
from collections import deque

import pytest

from servebench.core.outcomes import CHUNK_KINDS, Outcome, TokenSource
from servebench.core.records import Answer
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.timeline import End, Timeline

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":9}}\n\n'
DONE = b"data: [DONE]\n\n"
ALL_ENDS = list(End)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def told(*reads: bytes, endpoint: str = "openai-chat", stream: bool = True) -> Timeline:
    """Return a timeline fed with these reads at 100, 110, 120, … ns, each 3 ns late."""
    timeline = Timeline(ENDPOINTS[endpoint], stream=stream, keep_text=True)
    for number, read in enumerate(reads):
        timeline.feed(read, 100 + 10 * number, 3)
    return timeline


def ruling(answer: Answer) -> tuple[Outcome, str | None]:
    return answer.outcome, answer.error_class


def kinds(answer: Answer) -> list[str]:
    assert answer.chunks is not None
    return [CHUNK_KINDS[kind] for kind in answer.chunks.kind]


def test_a_whole_stream_is_told_event_by_event() -> None:
    timeline = told(CHUNKED, chunk(TOKEN), chunk(TOKEN + FINISH), chunk(USAGE), chunk(DONE), LAST_CHUNK)
    answer = timeline.finish(End.COMPLETE, 999)
    assert ruling(answer) == (Outcome.OK, None)
    assert kinds(answer) == ["content", "content", "finish", "usage", "done"]
    assert answer.chunks is not None
    assert answer.chunks.ns.tolist() == [110, 120, 120, 130, 140]
    assert answer.chunks.read.tolist() == [1, 2, 2, 3, 4]
    assert answer.chunks.delay_ns.tolist() == [3] * 5
    assert answer.chunks.tokens.tolist() == [-1] * 5
    assert answer.chunks.choice.tolist() == [0] * 5
    assert (answer.headers_ns, timeline.first_token_ns, answer.end_ns) == (100, 110, 140)
    assert (answer.output_tokens, answer.token_source, answer.input_tokens) == (9, TokenSource.USAGE, 4)
    assert (answer.text, answer.finish_reason, answer.streamed, answer.http_status) == ("aa", "stop", True, 200)
    assert (timeline.message_done, timeline.keep_alive, timeline.read_count) == (True, True, 6)


def test_text_is_kept_only_where_asked_for() -> None:
    timeline = Timeline(ENDPOINTS["openai-chat"])
    timeline.feed(HEAD + TOKEN + DONE, 1, -1)
    assert timeline.finish(End.EOF, 2).text is None


def test_progress_is_told_while_it_happens() -> None:
    timeline = Timeline(ENDPOINTS["openai-chat"])
    assert (timeline.head_done, timeline.status, timeline.read_count) == (False, None, 0)
    timeline.feed(CHUNKED, 1, -1)
    assert (timeline.head_done, timeline.status, timeline.first_token_ns) == (True, 200, None)
    timeline.feed(chunk(TOKEN), 2, -1)
    assert (timeline.first_token_ns, timeline.answer_done) == (2, False)
    timeline.feed(chunk(FINISH), 3, -1)
    assert timeline.answer_done is False, "usage may follow a finish reason"
    timeline.feed(chunk(DONE), 4, -1)
    assert (timeline.answer_done, timeline.message_done, timeline.keep_alive) == (True, False, False)
    timeline.feed(LAST_CHUNK, 5, -1)
    assert (timeline.message_done, timeline.keep_alive) == (True, True)


@pytest.mark.parametrize("end", ALL_ENDS)
@pytest.mark.parametrize(
    ("terminal", "end_ns"), [(DONE, 120), (FINISH, 120), (FINISH + DONE, 120)], ids=["done", "finish", "both"]
)
def test_whatever_ends_the_reading_after_the_terminal_signal_the_answer_is_ok(
    terminal: bytes, end_ns: int, end: End
) -> None:
    answer = told(HEAD, TOKEN, terminal).finish(end, 999)
    assert ruling(answer) == (Outcome.OK, None)
    assert answer.end_ns == end_ns


UNFINISHED = {
    End.COMPLETE: (Outcome.TRUNCATED, "truncated"),
    End.EOF: (Outcome.TRUNCATED, "truncated"),
    End.RESET: (Outcome.TRUNCATED, "connection_reset"),
    End.CONNECT_ERROR: (Outcome.TRUNCATED, "truncated"),
    End.TIMEOUT_CONNECT: (Outcome.TIMEOUT, "timeout_connect"),
    End.TIMEOUT_FIRST_TOKEN: (Outcome.TIMEOUT, "timeout_first_token"),
    End.TIMEOUT_IDLE: (Outcome.TIMEOUT, "timeout_idle"),
    End.TIMEOUT_TOTAL: (Outcome.TIMEOUT, "timeout_total"),
    End.CANCELLED: (Outcome.CANCELLED, "cancelled"),
}


@pytest.mark.parametrize(("end", "expected"), UNFINISHED.items())
def test_an_unfinished_answer_ends_as_its_reading_did_and_keeps_what_came(
    end: End, expected: tuple[Outcome, str]
) -> None:
    answer = told(CHUNKED, chunk(TOKEN), chunk(TOKEN)).finish(end, 999, "said the system")
    assert ruling(answer) == expected
    assert (answer.error_message, answer.end_ns) == ("said the system", 999)
    assert (answer.output_tokens, answer.token_source, answer.text) == (2, TokenSource.EVENTS, "aa")


NOTHING = UNFINISHED | {
    End.COMPLETE: (Outcome.CONNECT_ERROR, "no_response"),
    End.EOF: (Outcome.CONNECT_ERROR, "no_response"),
    End.RESET: (Outcome.CONNECT_ERROR, "connection_reset"),
    End.CONNECT_ERROR: (Outcome.CONNECT_ERROR, "connect_error"),
}


@pytest.mark.parametrize(("end", "expected"), NOTHING.items())
def test_without_any_byte_everything_that_did_not_happen_is_none(end: End, expected: tuple[Outcome, str]) -> None:
    answer = told().finish(end, 999, "why")
    assert answer == Answer(
        outcome=expected[0], error_class=expected[1], error_message="why", end_ns=999, response_bytes=0
    )


def test_a_connect_error_takes_the_finer_word_of_the_transport() -> None:
    answer = told().finish(End.CONNECT_ERROR, 9, "Connection refused", "connection_refused")
    assert ruling(answer) == (Outcome.CONNECT_ERROR, "connection_refused")


def test_the_finer_word_is_for_connect_errors_only() -> None:
    assert told(HEAD, TOKEN).finish(End.RESET, 9, None, "refused").error_class == "connection_reset"


@pytest.mark.parametrize("end", [End.EOF, End.RESET])
def test_half_a_head_is_a_truncated_answer_without_chunks(end: End) -> None:
    answer = told(b"HTTP/1.1 200 OK\r\nRetry-After: 3\r\n").finish(end, 9)
    assert answer.outcome is Outcome.TRUNCATED
    assert (answer.http_status, answer.chunks, answer.text, answer.retry_after_s) == (None, None, None, None)


def test_a_head_without_events_has_empty_chunks() -> None:
    answer = told(HEAD).finish(End.EOF, 9)
    assert ruling(answer) == (Outcome.TRUNCATED, "empty_stream")
    assert answer.chunks is not None
    assert len(answer.chunks) == 0


@pytest.mark.parametrize("stream", [DONE, b": ping\n\n" + DONE, b'data: {"choices":[]}\n\n' + DONE])
def test_done_without_any_sign_of_an_answer_is_no_success(stream: bytes) -> None:
    assert ruling(told(HEAD + stream).finish(End.EOF, 9)) == (Outcome.TRUNCATED, "empty_stream")


def test_an_answer_of_no_tokens_that_finished_is_a_success() -> None:
    answer = told(HEAD, FINISH, DONE).finish(End.EOF, 9)
    assert ruling(answer) == (Outcome.OK, None)
    assert (answer.output_tokens, answer.token_source) == (0, TokenSource.EVENTS)


def test_a_stream_is_not_over_while_one_of_its_choices_goes_on() -> None:
    other = TOKEN.replace(b'"index":0', b'"index":1')
    other_finish = FINISH.replace(b'"index":0', b'"index":1')
    cut = told(HEAD, TOKEN, other, FINISH, other).finish(End.EOF, 999)
    assert ruling(cut) == (Outcome.TRUNCATED, "truncated")
    whole = told(HEAD, TOKEN, other, FINISH, other, other_finish).finish(End.EOF, 999)
    assert ruling(whole) == (Outcome.OK, None)
    assert (whole.end_ns, whole.text) == (150, "a")


@pytest.mark.parametrize("end", [End.EOF, End.COMPLETE])
def test_text_after_the_finish_reason_moves_the_end_to_its_own_read(end: End) -> None:
    reads = [CHUNKED, *map(chunk, (TOKEN, FINISH, TOKEN, TOKEN, USAGE))]
    answer = told(*reads, LAST_CHUNK).finish(end, 999)
    assert ruling(answer) == (Outcome.OK, None)
    assert answer.chunks is not None
    assert answer.chunks.ns.tolist() == [110, 120, 130, 140, 150]
    assert (answer.end_ns, answer.text, answer.finish_reason) == (140, "aaa", "stop")
    assert told(*reads, chunk(DONE), LAST_CHUNK).finish(end, 999).end_ns == 160, "its own signal tells more"


def test_a_choice_that_begins_after_another_finished_must_finish_too() -> None:
    late = TOKEN.replace(b'"index":0', b'"index":1')
    assert told(HEAD, TOKEN, FINISH, late).finish(End.RESET, 9).outcome is Outcome.TRUNCATED
    assert told(HEAD, TOKEN, FINISH, late, DONE).finish(End.RESET, 9).outcome is Outcome.OK


def test_the_choice_of_every_event_is_kept() -> None:
    second, third = (TOKEN.replace(b'"index":0', b'"index":%d' % index) for index in (1, 2))
    chunks = told(HEAD, TOKEN + TOKEN + second, TOKEN, third + second, TOKEN + DONE).finish(End.EOF, 9).chunks
    assert chunks is not None
    assert chunks.choice.tolist() == [0, 0, 1, 0, 2, 1, 0, 0]


def test_nothing_after_done_counts() -> None:
    timeline = told(HEAD, TOKEN + DONE + TOKEN + USAGE, b"\xff\xfe broken")
    answer = timeline.finish(End.EOF, 9)
    assert kinds(answer) == ["content", "done"]
    assert (answer.output_tokens, answer.token_source) == (1, TokenSource.EVENTS)


def test_an_error_event_ends_the_answer() -> None:
    timeline = told(HEAD, TOKEN, b'data: {"error":{"message":"full"}}\n\n' + TOKEN + DONE)
    assert timeline.answer_done
    answer = timeline.finish(End.EOF, 999)
    assert ruling(answer) == (Outcome.STREAM_ERROR, "in_band_error")
    assert (answer.error_message, answer.end_ns, answer.output_tokens) == ("full", 120, 1)
    assert kinds(answer) == ["content", "error"]


@pytest.mark.parametrize("data", [b'{"message":"full"}', b"full", b'{"choices":[],"message":"full"}'])
def test_the_event_name_error_makes_any_data_an_error(data: bytes) -> None:
    answer = told(HEAD, b"event: error\ndata: " + data + b"\n\n").finish(End.EOF, 9)
    assert ruling(answer) == (Outcome.STREAM_ERROR, "in_band_error")
    assert answer.error_message == "full"


def test_a_broken_event_fails_the_answer_even_where_it_goes_on() -> None:
    answer = told(HEAD, TOKEN, b'data: {"choices":[\n\n', TOKEN + FINISH + DONE).finish(End.EOF, 999)
    assert ruling(answer) == (Outcome.MALFORMED, "malformed_event")
    assert (answer.end_ns, answer.output_tokens) == (120, 1)
    assert answer.error_message is not None
    assert '{"choices":[' in answer.error_message


@pytest.mark.parametrize(
    ("last", "outcome"),
    [(b"data: {\n\n", Outcome.MALFORMED), (b'data: {"error":"full"}\n\n', Outcome.STREAM_ERROR)],
    ids=["broken event", "error event"],
)
def test_a_finish_reason_does_not_excuse_what_goes_wrong_after_it(last: bytes, outcome: Outcome) -> None:
    assert told(HEAD, TOKEN, FINISH, last, DONE).finish(End.EOF, 9).outcome is outcome


def test_a_message_is_bounded_however_much_was_sent() -> None:
    answer = told(HEAD, b"data: {" + "ü".encode() * 5000 + b"\n\n").finish(End.EOF, 9)
    assert answer.error_message is not None
    assert 400 < len(answer.error_message.encode()) <= 500


@pytest.mark.parametrize(
    "last", [b"data: [DONE]", b"data: [DONE]\n", FINISH.rstrip(b"\n")], ids=["bare", "line", "json"]
)
@pytest.mark.parametrize("framing", ["close", "chunked"])
def test_an_event_without_its_blank_line_counts_at_a_clean_end(last: bytes, framing: str) -> None:
    if framing == "close":
        answer = told(HEAD, TOKEN, last).finish(End.EOF, 999)
    else:
        answer = told(CHUNKED, chunk(TOKEN), chunk(last) + LAST_CHUNK).finish(End.COMPLETE, 999)
    assert ruling(answer) == (Outcome.OK, None)
    assert answer.end_ns == 120


def test_an_event_without_its_blank_line_is_nothing_where_the_connection_broke() -> None:
    answer = told(CHUNKED, chunk(TOKEN), b"100\r\ndata: [DONE]").finish(End.RESET, 999)
    assert ruling(answer) == (Outcome.TRUNCATED, "connection_reset")
    assert kinds(answer) == ["content"]


def response(status: str, content_type: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


WHOLE = (
    b'{"model":"m","choices":[{"message":{"content":"All."},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}'
)


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "text/plain"])
def test_a_whole_json_answer_is_a_success_that_was_not_streamed(content_type: str) -> None:
    answer = told(response("200 OK", content_type, WHOLE)).finish(End.COMPLETE, 999)
    assert ruling(answer) == (Outcome.OK, None)
    assert (answer.streamed, answer.text, answer.output_tokens, answer.end_ns) == (False, "All.", 2, 100)
    assert kinds(answer) == []


def test_a_whole_answer_without_usage_has_no_token_count() -> None:
    body = b'{"choices":[{"message":{"content":"All."},"finish_reason":"stop"}]}'
    answer = told(response("200 OK", "application/json", body), stream=False).finish(End.COMPLETE, 999)
    assert (answer.outcome, answer.output_tokens, answer.token_source) == (Outcome.OK, None, None)


def test_a_cut_json_answer_is_truncated() -> None:
    answer = told(response("200 OK", "application/json", WHOLE)[:-5]).finish(End.EOF, 999)
    assert ruling(answer) == (Outcome.TRUNCATED, "truncated")


def test_a_broken_json_answer_is_malformed() -> None:
    answer = told(response("200 OK", "application/json", WHOLE[:-5])).finish(End.COMPLETE, 999)
    assert ruling(answer) == (Outcome.MALFORMED, "malformed_body")


def test_a_json_error_with_status_200_is_an_error_in_band() -> None:
    answer = told(response("200 OK", "application/json", b'{"error":"full"}')).finish(End.COMPLETE, 9)
    assert (ruling(answer), answer.error_message) == ((Outcome.STREAM_ERROR, "in_band_error"), "full")


def test_a_stream_without_content_type_is_a_stream_all_the_same() -> None:
    answer = told(b"HTTP/1.1 200 OK\r\n\r\n", b"\r\n", TOKEN, DONE).finish(End.EOF, 9)
    assert (ruling(answer), answer.streamed) == ((Outcome.OK, None), True)


@pytest.mark.parametrize("end", [End.COMPLETE, End.TIMEOUT_IDLE, End.RESET])
def test_a_page_is_no_answer_however_it_ends(end: End) -> None:
    answer = told(response("200 OK", "text/html", b"<html>Sign in</html>")[:-3]).finish(end, 9)
    assert ruling(answer) == (Outcome.MALFORMED, "not_a_stream")
    assert answer.error_message == "text/html: <html>Sign in</ht"
    assert answer.streamed is False


REFUSALS = {
    "json object": ("503 Busy", "application/json", b'{"error":{"message":"full"}}', "http_503", "full"),
    "json string": ("401 No", "application/json", b'{"error":"who?"}', "http_401", "who?"),
    "detail": ("404 No", "application/json", b'{"detail":"Not Found"}', "http_404", "Not Found"),
    "text": ("500 No", "text/plain", b"Internal Server Error", "http_500", "Internal Server Error"),
    "stream": ("500 No", "text/event-stream", b'data: {"error":"full"}\n\n' + DONE, "http_500", "full"),
    "nothing": ("502 No", "text/plain", b"", "http_502", None),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS.keys())
@pytest.mark.parametrize("end", [End.COMPLETE, End.RESET, End.TIMEOUT_TOTAL, End.CANCELLED])
def test_a_refusal_keeps_status_and_message_however_it_ends(
    case: tuple[str, str, bytes, str, str | None], end: End
) -> None:
    status, content_type, body, error_class, message = case
    answer = told(response(status, content_type, body)).finish(end, 9)
    assert ruling(answer) == (Outcome.HTTP_ERROR, error_class)
    assert (answer.error_message, answer.output_tokens) == (message, None)


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("2", None, 2.0),
        ("0", None, 0.0),
        ("1.5", None, 1.5),
        ("-1", None, None),
        ("soon", None, None),
        ("1" * 400, None, None),
        ("Mon, 04 Jan 2027 09:00:00 GMT", None, None),
        ("Mon, 04 Jan 2027 09:00:00 GMT", "Mon, 04 Jan 2027 08:59:30 GMT", 30.0),
        ("Mon, 04 Jan 2027 09:00:00 GMT", "Mon, 04 Jan 2027 10:00:00 GMT", 0.0),
        ("Mon, 04 Jan 2027 09:00:00 GMT", "today", None),
        ("7", "today", 7.0),
    ],
)
def test_retry_after_is_told_in_seconds_of_the_servers_own_clock(
    value: str, date: str | None, seconds: float | None
) -> None:
    more = [] if date is None else [f"Date: {date}"]
    data = response("429 Too Many Requests", "application/json", b"{}", f"Retry-After: {value}", *more)
    assert told(data).finish(End.COMPLETE, 9).retry_after_s == seconds


def test_a_redirect_shows_where_to() -> None:
    answer = told(response("308 Moved", "text/html", b"<html>", "Location: /v1/")).finish(End.COMPLETE, 9)
    assert (ruling(answer), answer.error_message) == ((Outcome.HTTP_ERROR, "redirect"), "Location: /v1/")


def test_what_is_no_http_is_malformed_and_says_so_at_once() -> None:
    timeline = told(b"220 mail.example ESMTP\r\n")
    assert timeline.broken
    assert ruling(timeline.finish(End.RESET, 9)) == (Outcome.MALFORMED, "malformed_http")


def test_broken_framing_after_the_terminal_signal_does_no_harm_but_to_the_connection() -> None:
    timeline = told(CHUNKED, chunk(TOKEN), chunk(DONE), b"zz\r\n")
    assert (timeline.broken, timeline.keep_alive) == (True, False)
    assert ruling(timeline.finish(End.COMPLETE, 9)) == (Outcome.OK, None)


def test_broken_framing_before_it_is_malformed() -> None:
    answer = told(CHUNKED, chunk(TOKEN), b"zz\r\n").finish(End.RESET, 9)
    assert ruling(answer) == (Outcome.MALFORMED, "malformed_http")
    assert answer.output_tokens == 1


CODED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: %s\r\n\r\n"


def test_a_compressed_stream_is_read_as_it_comes() -> None:
    packed = gzip.compress(TOKEN) + gzip.compress(DONE)
    place = len(gzip.compress(TOKEN))
    timeline = told(CODED % b"gzip", packed[:place], packed[place:])
    assert (timeline.first_token_ns, timeline.answer_done) == (110, True)


def test_nothing_after_done_counts_in_a_compressed_stream_either() -> None:
    packed = gzip.compress(TOKEN + DONE) + gzip.compress(TOKEN)
    assert kinds(told(CODED % b"gzip", packed).finish(End.EOF, 9)) == ["content", "done"]


@pytest.mark.parametrize(
    ("coding", "error_class"), [(b"gzip", "malformed_coding"), (b"br", "unknown_coding")], ids=["broken", "unknown"]
)
def test_a_coding_that_cannot_be_undone_is_malformed(coding: bytes, error_class: str) -> None:
    timeline = told(CODED % coding, TOKEN)
    assert timeline.answer_done
    assert ruling(timeline.finish(End.EOF, 9)) == (Outcome.MALFORMED, error_class)


def test_delays_beyond_int32_are_kept_as_its_greatest_value() -> None:
    timeline = Timeline(ENDPOINTS["openai-chat"])
    timeline.feed(HEAD + TOKEN, 1, 2**40)
    chunks = timeline.finish(End.EOF, 9).chunks
    assert chunks is not None
    assert chunks.delay_ns.tolist() == [2**31 - 1]


@pytest.mark.parametrize(("index", "kept"), [(b"300", 127), (b"-1", 0), (b"null", 0)])
def test_a_choice_that_the_column_cannot_hold_is_counted_under_the_nearest(index: bytes, kept: int) -> None:
    chunks = told(HEAD, TOKEN.replace(b'"index":0', b'"index":' + index)).finish(End.EOF, 9).chunks
    assert chunks is not None
    assert chunks.choice.tolist() == [kept]


def test_common_reads_are_taken_together_and_the_first_other_one_is_left() -> None:
    named = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    timeline = told(CHUNKED, chunk(named))
    waiting = deque((read, 200 + 10 * n, n) for n, read in enumerate([chunk(TOKEN)] * 2 + [chunk(TOKEN) * 3]))
    waiting.append((chunk(FINISH), 300, 9))
    assert timeline.feed_plain(waiting) == 3
    assert [read[0] for read in waiting] == [chunk(FINISH)]
    assert timeline.feed_plain(waiting) == 0
    timeline.feed(*waiting.popleft())
    answer = timeline.finish(End.CANCELLED, 999)
    assert answer.chunks is not None
    assert answer.chunks.ns.tolist() == [110, 200, 210, 220, 220, 220, 300]
    assert answer.chunks.read.tolist() == [1, 2, 3, 4, 4, 4, 5]
    assert answer.chunks.delay_ns.tolist() == [3, 0, 1, 2, 2, 2, 9]
    assert answer.text == "aaaaaa"
    assert timeline.response_bytes == sum(map(len, [CHUNKED, chunk(named), chunk(TOKEN) * 5, chunk(FINISH)]))


def test_before_the_first_token_and_inside_a_chunk_no_read_is_common() -> None:
    fresh, inside = told(CHUNKED), told(CHUNKED, chunk(TOKEN), chunk(TOKEN)[:9])
    for timeline in (fresh, inside):
        assert timeline.feed_plain(deque([(chunk(TOKEN), 200, 0)])) == 0
