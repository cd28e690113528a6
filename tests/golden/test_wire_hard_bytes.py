"""More hard responses, in the kinds of the cases (S streams, O payloads, H connections), each with its right outcome.

Written by hand after RFC 9112, RFC 9110, the event-stream format and public reports of servers. Every response is read
in one piece, in sevens and byte by byte, and the three must agree in everything but the times.
"""

import gzip
import json
import zlib
from typing import Any, NamedTuple

import pytest

from servebench.core.outcomes import CHUNK_KINDS
from servebench.core.records import Answer
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.timeline import End, Timeline

OK = b"HTTP/1.1 200 OK\r\n"
SSE = OK + b"Content-Type: text/event-stream\r\n"


def data(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def said(text: str, **more: object) -> bytes:
    return data({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more})


def delta(**fields: object) -> bytes:
    return data({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


def ended(reason: object = "stop", **more: object) -> bytes:
    return data({"choices": [{"index": 0, "delta": {}, "finish_reason": reason, **more}]})


def usage(prompt: object, completion: object, **more: object) -> bytes:
    return data({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}})


def chunked(body: bytes) -> bytes:
    return b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def counted(body: bytes, length: int | None = None) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body) if length is None else length, body)


def json_body(value: object, kind: bytes = b"application/json") -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return OK + b"Content-Type: " + kind + b"\r\n" + counted(body)


def stream(*events: bytes) -> bytes:
    return SSE + chunked(b"".join(events))


def pressed(*events: bytes) -> bytes:
    """Return gzip with a flush after each event, as a proxy that compresses streams sends it."""
    coder = zlib.compressobj(wbits=31)
    return b"".join(coder.compress(event) + coder.flush(zlib.Z_SYNC_FLUSH) for event in events) + coder.flush()


AB, DONE = said("a") + said("b"), b"data: [DONE]\n\n"
WHOLE_AB = AB + ended() + DONE
FINE = {"outcome": "ok", "text": "ab", "token_events": 2, "streamed": True}
REPLY = {"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}


class Case(NamedTuple):
    response: bytes
    expected: dict[str, Any]
    end: End = End.EOF
    endpoint: str = "openai-chat"


def broken(error_class: str, outcome: str = "malformed", **more: object) -> dict[str, object]:
    return {"outcome": outcome, "error_class": error_class, **more}


FRAMING = {
    "H chunk extensions and trailers": Case(
        SSE
        + b'Transfer-Encoding: chunked\r\n\r\n%x;a=b;q="x;y"\r\n%s\r\n0;z\r\nX-T: 1\r\nRetry-After: 9\r\n\r\n'
        % (len(WHOLE_AB), WHOLE_AB),
        FINE | {"retry_after_s": None, "keep_alive": True},
    ),
    "H chunk size with zeros, capitals and blanks": Case(
        SSE + b"Transfer-Encoding: Chunked\r\n\r\n00%X  \r\n%s\r\n000\r\n\r\n" % (len(WHOLE_AB), WHOLE_AB), FINE
    ),
    "H folded header": Case(SSE + b"X-A: b\r\n\tfolded\r\n" + chunked(WHOLE_AB), FINE),
    "H folded content type": Case(
        OK + b"Content-Type: text/event-stream;\r\n  charset=utf-8\r\n" + chunked(WHOLE_AB), FINE
    ),
    "H bare LF in the head": Case(
        b"HTTP/1.1 200 OK\nContent-Type: text/event-stream\nContent-Length: %d\n\n" % len(WHOLE_AB) + WHOLE_AB, FINE
    ),
    "H blank line before the head": Case(b"\r\n" + stream(WHOLE_AB), FINE),
    "H no reason phrase": Case(stream(WHOLE_AB).replace(b"200 OK", b"200"), FINE),
    "H head of 60 KiB": Case(SSE + b"X-A: " + b"a" * 61_000 + b"\r\n" + chunked(WHOLE_AB), FINE),
    "H head of 80 KiB": Case(SSE + b"X-A: " + b"a" * 81_000 + b"\r\n" + chunked(WHOLE_AB), broken("malformed_http")),
    "H length beside chunks": Case(SSE + b"Content-Length: 5\r\n" + chunked(WHOLE_AB), FINE | {"keep_alive": False}),
    "H two lengths that differ": Case(SSE + b"Content-Length: 5\r\n" + counted(WHOLE_AB), broken("malformed_http")),
    "H length that is none": Case(SSE + b"Content-Length: ten\r\n\r\n" + AB, broken("malformed_http")),
    "H length too long, answer whole": Case(SSE + counted(WHOLE_AB, 99_999), FINE | {"keep_alive": False}),
    "H length too long, answer cut": Case(
        SSE + counted(AB, 99_999), broken("truncated", "truncated", text="ab", keep_alive=False)
    ),
    "H length too short": Case(SSE + counted(WHOLE_AB, len(said("a"))), broken("truncated", "truncated", text="a")),
    "H status that is none": Case(b"HTTP/1.1 2OO OK\r\n\r\n", broken("malformed_http", status=None)),
    "H no HTTP at all": Case(b"SSH-2.0-OpenSSH_9.2\r\n", broken("malformed_http", status=None)),
    "H HTTP/0.9": Case(WHOLE_AB, broken("malformed_http", status=None)),
    "H TLS where HTTP was asked": Case(b"\x15\x03\x01\x00\x02\x02\x46", broken("malformed_http", status=None)),
    "H head cut": Case(SSE[:-4], broken("truncated", "truncated", status=None)),
    "H head reset": Case(SSE, broken("connection_reset", "truncated", status=None), End.RESET),
    "H interim answer and no other": Case(
        b"HTTP/1.1 100 Continue\r\n\r\n", broken("truncated", "truncated", status=None)
    ),
    "H several interim answers": Case(b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n" * 3 + stream(WHOLE_AB), FINE),
    "H no byte": Case(b"", broken("no_response", "connect_error", status=None)),
    "H 101": Case(b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", broken("malformed_http")),
    "H 204": Case(b"HTTP/1.1 204 No Content\r\n\r\n", broken("empty_stream", "truncated", status=204)),
    "H 206": Case(stream(WHOLE_AB).replace(b"200 OK", b"206 Partial"), FINE | {"status": 206}),
    "H 304": Case(b"HTTP/1.1 304 Not Modified\r\n\r\n", broken("http_304", "http_error")),
    "H 303": Case(b"HTTP/1.1 303 See Other\r\nLocation: /x\r\n" + counted(b""), broken("redirect", "http_error")),
    "H reset after [DONE]": Case(
        SSE + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(WHOLE_AB), WHOLE_AB), FINE, End.RESET
    ),
    "H reset after the finish reason": Case(
        SSE + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + AB + ended(), FINE, End.RESET
    ),
    "H cut in a chunk": Case(
        SSE + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + AB, broken("truncated", "truncated", text="ab")
    ),
    "H chunk size that is none": Case(
        SSE + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nzz\r\n" % (len(AB), AB),
        broken("malformed_http", text="ab", keep_alive=False),
    ),
    "H Latin-1 in a header": Case(SSE + b"X-A: caf\xe9\r\n" + chunked(WHOLE_AB), FINE),
    "H gzip flushed per event": Case(
        SSE + b"Content-Encoding: gzip\r\n" + chunked(pressed(said("a"), said("b"), ended(), DONE)), FINE
    ),
    "H gzip without its trailer": Case(
        SSE + b"Content-Encoding: gzip\r\n" + chunked(pressed(said("a"), said("b"), ended(), DONE)[:-8]), FINE
    ),
    "H gzip with a wrong sum behind a whole answer": Case(
        SSE + b"Content-Encoding: gzip\r\n" + chunked(gzip.compress(WHOLE_AB)[:-8] + bytes(8)), FINE
    ),
    "H gzip with a wrong sum behind half an answer": Case(
        SSE + b"Content-Encoding: gzip\r\n" + chunked(gzip.compress(AB)[:-8] + bytes(8)),
        broken("malformed_coding", text="ab"),
    ),
    "H junk behind gzip": Case(SSE + b"Content-Encoding: gzip\r\n" + chunked(gzip.compress(WHOLE_AB) + b"junk"), FINE),
    "H gzip that is none": Case(SSE + b"Content-Encoding: gzip\r\n" + chunked(WHOLE_AB), broken("malformed_coding")),
    "H bare deflate": Case(SSE + b"Content-Encoding: deflate\r\n" + chunked(zlib.compress(WHOLE_AB, wbits=-15)), FINE),
    "H gzip twice": Case(
        SSE + b"Content-Encoding: gzip, gzip\r\n" + chunked(gzip.compress(gzip.compress(WHOLE_AB))), FINE
    ),
    "H codings in two headers": Case(
        SSE
        + b"Content-Encoding: deflate\r\nContent-Encoding: gzip\r\n"
        + chunked(gzip.compress(zlib.compress(WHOLE_AB))),
        FINE,
    ),
    "H gzip as transfer coding": Case(
        SSE
        + b"Transfer-Encoding: gzip, chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
        % (len(gzip.compress(WHOLE_AB)), gzip.compress(WHOLE_AB)),
        FINE,
    ),
    "H coding that is no word of HTTP": Case(SSE + b"Content-Encoding: utf-8\r\n" + chunked(WHOLE_AB), FINE),
    "H brotli": Case(SSE + b"Content-Encoding: br\r\n" + chunked(b"\x0b\x02"), broken("unknown_coding")),
    "H zstd": Case(SSE + b"Content-Encoding: zstd\r\n" + chunked(b"(\xb5/\xfd"), broken("unknown_coding")),
    "H error under brotli": Case(
        b"HTTP/1.1 429 Slow\r\nContent-Encoding: br\r\n" + counted(b"\x0b\x02"), broken("http_429", "http_error")
    ),
    "H compressed error": Case(
        b"HTTP/1.1 401 No\r\nContent-Encoding: gzip\r\n" + counted(gzip.compress(b'{"error":{"message":"bad key"}}')),
        broken("http_401", "http_error", message="bad key"),
    ),
    "H error broken off": Case(
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 100\r\n\r\nupstream",
        broken("http_502", "http_error", message="upstream"),
        End.TIMEOUT_IDLE,
    ),
}

STREAMS = {
    "S CR only": Case(stream(WHOLE_AB.replace(b"\n", b"\r")), FINE),
    "S CRLF": Case(stream(WHOLE_AB.replace(b"\n", b"\r\n")), FINE),
    "S blank lines first": Case(stream(b"\n\n\r\n", WHOLE_AB), FINE),
    "S field names are lower case": Case(
        stream(AB.replace(b"data", b"DATA"), DONE), broken("empty_stream", "truncated", text="")
    ),
    "S comments alone": Case(stream(b": ping\n\n: ping\n\n"), broken("empty_stream", "truncated")),
    "S [DONE] alone": Case(stream(DONE), broken("empty_stream", "truncated")),
    "S [DONE] quoted": Case(stream(AB, b'data: "[DONE]"\n\n'), FINE),
    "S [DONE] with blanks, no blank line": Case(stream(AB, b"data:  [DONE] \r\n"), FINE),
    "S line separators of Unicode are text": Case(
        stream(said("a\u2028b\u2029c\u0085d"), DONE), {"outcome": "ok", "text": "a\u2028b\u2029c\u0085d"}
    ),
    "S a character over two events": Case(
        stream(
            data(b'{"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}'),
            data(b'{"choices":[{"index":0,"delta":{"content":"\\udeb2"}}]}'),
            DONE,
        ),
        {"outcome": "ok", "text": "a\U0001f6b2", "token_events": 2},
    ),
    "S half a character": Case(
        stream(data(b'{"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}'), DONE),
        {"outcome": "ok", "text": "a\ufffd"},
    ),
    "S two events without a blank line": Case(
        stream(AB.replace(b"\n\ndata", b"\ndata"), DONE), broken("malformed_event", text="")
    ),
    "S tab inside a JSON text": Case(
        stream(data(b'{"choices":[{"index":0,"delta":{"content":"a\tb"}}]}'), DONE), broken("malformed_event")
    ),
    "S bytes that are no UTF-8": Case(
        stream(data(b'{"choices":[{"index":0,"delta":{"content":"\xff"}}]}'), DONE), broken("malformed_event")
    ),
    "S named error without JSON": Case(
        stream(AB, b"event: error\ndata: out of memory\n\n"),
        broken("in_band_error", "stream_error", message="out of memory", token_events=2),
    ),
    "S named error that holds text": Case(
        stream(b"event: error\n" + said("x"), DONE), broken("in_band_error", "stream_error", token_events=0)
    ),
    "S error object called a stream": Case(
        SSE + chunked(b'{\n "error": {"message": "no memory"}\n}\n'),
        broken("in_band_error", "stream_error", message="no memory", streamed=False),
    ),
    "S whole answer called a stream": Case(
        SSE + chunked(json.dumps(REPLY).encode()), {"outcome": "ok", "text": "hi", "streamed": False}
    ),
    "S plain text called a stream": Case(
        SSE + chunked(b"Internal Server Error"), broken("not_a_stream", message="Internal Server Error")
    ),
    "S page called a stream": Case(SSE + chunked(b"\n<!doctype html>"), broken("not_a_stream", message="<!doctype")),
    "S empty stream": Case(SSE + chunked(b" \n"), broken("empty_stream", "truncated", streamed=True)),
    "S stream called JSON": Case(OK + b"Content-Type: application/json\r\n" + chunked(WHOLE_AB), FINE),
    "S stream called HTML": Case(OK + b"Content-Type: text/html; charset=utf-8\r\n" + chunked(WHOLE_AB), FINE),
    "S stream called nothing, comment first": Case(OK + chunked(b"\n: hi\n\n" + WHOLE_AB), FINE),
    "S stream called nothing, mark first": Case(OK + chunked(b"\xef\xbb\xbf" + WHOLE_AB), FINE),
    "S words that begin like a stream": Case(
        OK + b"Content-Type: text/plain\r\n" + counted(b"database is down"),
        broken("not_a_stream", message="text/plain: database is down"),
    ),
    "S word that a stream may begin with": Case(OK + counted(b"da"), broken("not_a_stream", message="da")),
}

PAYLOADS = {
    "O usage in the first event only": Case(
        stream(data({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 0}}), WHOLE_AB),
        FINE | {"output_tokens": 2, "token_source": "events", "input_tokens": 3},
    ),
    "O running usage cut short": Case(
        stream(said("a", usage={"prompt_tokens": 3, "completion_tokens": 4}), said("b"), DONE),
        FINE | {"output_tokens": 2, "token_source": "events"},
    ),
    "O usage in every event, null at the end": Case(
        stream(
            said("a", usage={"prompt_tokens": 3, "completion_tokens": 4}),
            said("b", usage={"prompt_tokens": 3, "completion_tokens": 7}),
            data({"choices": [], "usage": None}),
            ended(),
        ),
        FINE | {"output_tokens": 7, "token_source": "usage"},
    ),
    "O usage twice": Case(
        stream(AB, ended(), usage(3, 5), usage(3, 5), DONE), FINE | {"output_tokens": 5, "token_source": "usage"}
    ),
    "O usage, then zeros": Case(
        stream(AB, ended(), usage(3, 5), usage(0, 0), DONE), FINE | {"output_tokens": 5, "token_source": "usage"}
    ),
    "O zeros for text": Case(
        stream(AB, ended(), usage(3, 0), DONE), FINE | {"output_tokens": 2, "token_source": "events"}
    ),
    "O zeros for nothing": Case(
        stream(ended(), usage(3, 0), DONE), {"outcome": "ok", "output_tokens": 0, "token_source": "usage", "text": ""}
    ),
    "O usage of the prompt alone": Case(
        stream(AB, ended(), data({"choices": [], "usage": {"prompt_tokens": 3}}), DONE),
        FINE | {"input_tokens": 3, "output_tokens": 2, "token_source": "events"},
    ),
    "O usage in the choice": Case(
        stream(AB, ended(usage={"prompt_tokens": 3, "completion_tokens": 8}), DONE),
        FINE | {"input_tokens": 3, "output_tokens": 8, "finish_reason": "stop"},
    ),
    "O usage in a vendor's object": Case(
        stream(
            AB,
            data(
                {
                    "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                    "x_groq": {"id": "r", "usage": {"prompt_tokens": 3, "completion_tokens": 8}},
                }
            ),
            DONE,
        ),
        FINE | {"input_tokens": 3, "output_tokens": 8},
    ),
    "O usage by the other names": Case(
        stream(AB, ended(), data({"choices": [], "usage": {"input_tokens": 3, "output_tokens": 8}}), DONE),
        FINE | {"input_tokens": 3, "output_tokens": 8},
    ),
    "O usage as text and floats": Case(
        stream(AB, ended(), usage("3", 8.0, prompt_tokens_details={"cached_tokens": "2"}), DONE),
        FINE | {"input_tokens": 3, "output_tokens": 8, "cached_tokens": 2},
    ),
    "O usage that is a word": Case(
        stream(AB, data({"choices": [], "usage": "none"}), DONE), FINE | {"token_source": "events"}
    ),
    "O cached tokens beside the prompt": Case(
        stream(AB, usage(9, 2, prompt_cache_hit_tokens=4, prompt_cache_miss_tokens=5), DONE),
        FINE | {"cached_tokens": 4},
    ),
    "O negative usage": Case(stream(AB, usage(-1, -1), DONE), FINE | {"token_source": "events", "input_tokens": None}),
    "O usage behind [DONE]": Case(stream(WHOLE_AB, usage(3, 9)), FINE | {"token_source": "events"}),
    "O finish reason error": Case(
        stream(AB, ended("error"), DONE),
        broken("in_band_error", "stream_error", message="finish_reason error", token_events=2),
    ),
    "O finish reason abort": Case(stream(AB, ended("abort"), DONE), broken("in_band_error", "stream_error")),
    "O error in a choice": Case(
        stream(AB, ended("error", error={"code": 502, "message": "upstream"}), DONE),
        broken("in_band_error", "stream_error", message="upstream"),
    ),
    "O finish reason that is the word null": Case(
        stream(data({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "null"}]})),
        broken("truncated", "truncated", finish_reason=None),
    ),
    "O finish reason as an object": Case(
        stream(AB, ended({"type": "length", "length": 2})), FINE | {"finish_reason": "length"}
    ),
    "O finish reason content_filter and no text": Case(
        stream(ended("content_filter"), DONE), {"outcome": "ok", "finish_reason": "content_filter", "token_events": 0}
    ),
    "O choice index as a float": Case(
        stream(data(b'{"choices":[{"index":0.0,"delta":{"content":"ab"}}]}'), DONE), {"outcome": "ok", "text": "ab"}
    ),
    "O error with the text of an event": Case(
        stream(AB, said("z", error={"message": "m"}), DONE),
        broken("in_band_error", "stream_error", message="m", text="ab", token_events=2),
    ),
    "O error code zero is none": Case(stream(AB, data({"code": 0, "message": "success"}), DONE), FINE),
    "O error code as a word": Case(
        stream(AB, data({"code": "InvalidParameter", "message": "too long"}), DONE),
        broken("in_band_error", "stream_error"),
    ),
    "O two choices in one event": Case(
        stream(
            data({"choices": [{"index": 0, "delta": {"content": "ab"}}, {"index": 1, "delta": {"content": "B"}}]}),
            data({"choices": [{"index": i, "delta": {}, "finish_reason": "stop"} for i in (0, 1)]}),
        ),
        {"outcome": "ok", "text": "ab", "asides": ("B",), "token_events": 1},
    ),
    "O one of two choices never ends": Case(
        stream(ended(), data({"choices": [{"index": 1, "delta": {"content": "B"}}]})), broken("truncated", "truncated")
    ),
    "O sound with its words": Case(
        stream(delta(audio={"id": "x", "transcript": "hi"}), delta(audio={"data": "UklG"}), ended(), DONE),
        {"outcome": "ok", "text": "", "asides": ("hi",), "token_events": 2},
    ),
    "O call of a custom tool": Case(
        stream(delta(tool_calls=[{"index": 0, "type": "custom", "custom": {"name": "f", "input": "x"}}]), ended()),
        {"outcome": "ok", "asides": ("fx",), "token_events": 1},
    ),
    "O arguments as an object": Case(
        stream(delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": {"a": 1}}}, None]), ended()),
        {"outcome": "ok", "asides": ('f{"a":1}',), "token_events": 1},
    ),
    "O log probabilities of nothing": Case(
        stream(
            data({"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": {"content": [{"token": ""}]}}]}),
            WHOLE_AB,
        ),
        FINE,
    ),
    "O refusal alone": Case(
        stream(delta(refusal="I can"), delta(refusal="not"), ended(), DONE),
        {"outcome": "ok", "text": "", "asides": ("I cannot",), "token_events": 2},
    ),
    "O blanks are text": Case(stream(said(" "), said("\n"), DONE), {"outcome": "ok", "text": " \n", "token_events": 2}),
    "O whole answer behind a mark": Case(
        json_body(b"\xef\xbb\xbf" + json.dumps(REPLY).encode()), {"outcome": "ok", "text": "hi", "streamed": False}
    ),
    "O whole answer without an end": Case(
        OK + b"Content-Type: application/json\r\n" + counted(b'{"choices":[', 100), broken("truncated", "truncated")
    ),
    "O JSON that answers nothing": Case(json_body({"detail": "no"}), broken("malformed_body", message='"detail"')),
    "O JSON called HTML": Case(
        json_body({"error": "quota"}, b"text/html"), broken("in_band_error", "stream_error", message="quota")
    ),
}

LINES = OK + b"Content-Type: application/x-ndjson\r\n"


def line(text: str, **more: object) -> bytes:
    return json.dumps({"model": "l", "message": {"role": "assistant", "content": text}, "done": False, **more}).encode()


LAST = json.dumps({"model": "l", "done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}).encode()


def named(kind: str, **fields: object) -> bytes:
    return b"event: %s\n" % kind.encode() + data({"type": kind, **fields})


def response_at(status: str, **more: object) -> bytes:
    return named(f"response.{status}", response={"status": status, "output": [], "usage": {"output_tokens": 8}, **more})


BEGUN, PIECE = response_at("in_progress"), named("response.output_text.delta", delta="a")
BLOCK = named("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"})

DIALECTS = {
    "O lines called JSON": Case(
        OK + b"Content-Type: application/json\r\n" + chunked(line("a") + b"\n" + line("b") + b"\n" + LAST + b"\n"),
        FINE | {"output_tokens": 2, "token_source": "usage"},
        endpoint="ollama-chat",
    ),
    "O one line called JSON": Case(
        OK + b"Content-Type: application/json\r\n" + counted(line("hi", done=True, eval_count=1) + b"\n"),
        {"outcome": "ok", "text": "hi", "streamed": False},
        endpoint="ollama-chat",
    ),
    "O lines called an event stream": Case(
        SSE + chunked(line("a") + b"\n" + line("b") + b"\n" + LAST), FINE, endpoint="ollama-chat"
    ),
    "O lines in events": Case(stream(data(line("a")), data(line("b")), data(LAST)), FINE, endpoint="ollama-chat"),
    "O line that is no JSON": Case(
        LINES + chunked(line("a") + b"\noops\n" + LAST), broken("malformed_event", text="a"), endpoint="ollama-chat"
    ),
    "O line cut": Case(
        LINES + chunked(line("a") + b"\n" + line("b")[:-9]),
        broken("truncated", "truncated", text="a"),
        endpoint="ollama-chat",
    ),
    "O event cut where only the body ends an answer": Case(
        stream(data({"text_output": "a"}), b'data: {"text_out'),
        broken("truncated", "truncated", text="a"),
        endpoint="triton-generate",
    ),
    "O response cancelled": Case(
        stream(BEGUN, PIECE, response_at("cancelled")),
        broken("in_band_error", "stream_error", text="a"),
        endpoint="openai-responses",
    ),
    "O response failed without words": Case(
        json_body({"status": "failed", "error": None, "output": []}),
        broken("in_band_error", "stream_error"),
        endpoint="openai-responses",
    ),
    "O delta of a new tool": Case(
        stream(BEGUN, named("response.new_tool_call_code.delta", delta="x=1"), response_at("completed")),
        {"outcome": "ok", "kinds": "other,tool,done", "asides": ("x=1",)},
        endpoint="openai-responses",
    ),
    "O delta as an object": Case(
        stream(BEGUN, named("response.reasoning.delta", delta={"text": "hm"}), PIECE, response_at("completed")),
        {"outcome": "ok", "kinds": "other,reasoning,content,done", "asides": ("hm",), "text": "a"},
        endpoint="openai-responses",
    ),
    "O sound and its words": Case(
        stream(
            BEGUN,
            named("response.audio.delta", delta="UklG"),
            named("response.audio.transcript.delta", delta="hi"),
            response_at("completed"),
        ),
        {"outcome": "ok", "kinds": "other,content,content,done", "asides": ("hi",), "text": ""},
        endpoint="openai-responses",
    ),
    "O message of a ping, a new event and an error": Case(
        stream(named("ping"), named("new_thing"), BLOCK, named("error", error={"type": "x", "message": "Overloaded"})),
        broken("in_band_error", "stream_error", message="Overloaded", text="a"),
        endpoint="anthropic-messages",
    ),
    "O message without its stop": Case(
        stream(BLOCK, named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7})),
        broken("truncated", "truncated", output_tokens=7),
        endpoint="anthropic-messages",
    ),
}

CASES = {**FRAMING, **STREAMS, **PAYLOADS, **DIALECTS}


def read(case: Case, size: int | None) -> dict[str, Any]:
    timeline = Timeline(ENDPOINTS[case.endpoint], keep_text=True)
    step = size or len(case.response) or 1
    for start in range(0, len(case.response), step):
        timeline.feed(case.response[start : start + step], start, -1)
    keep_alive = timeline.keep_alive
    return {**told(timeline.finish(case.end, 10**9)), "keep_alive": keep_alive}


def told(answer: Answer) -> dict[str, Any]:
    chunks = answer.chunks
    kinds = [] if chunks is None else [CHUNK_KINDS[code].value for code in chunks.kind]
    return {
        "outcome": answer.outcome.value,
        "error_class": answer.error_class,
        "message": answer.error_message,
        "status": answer.http_status,
        "streamed": answer.streamed,
        "text": answer.text,
        "asides": answer.asides,
        "kinds": ",".join(kinds),
        "token_events": sum(kind in {"content", "reasoning", "tool", "refusal"} for kind in kinds),
        "tokens": None if chunks is None else chunks.tokens.tolist(),
        "output_tokens": answer.output_tokens,
        "token_source": None if answer.token_source is None else answer.token_source.value,
        "input_tokens": answer.input_tokens,
        "cached_tokens": answer.cached_tokens,
        "finish_reason": answer.finish_reason,
        "retry_after_s": answer.retry_after_s,
    }


@pytest.mark.parametrize("name", CASES)
def test_hard_bytes_have_their_outcome_wherever_they_are_cut(name: str) -> None:
    case = CASES[name]
    whole = read(case, None)
    words = case.expected.get("message") or ""
    wanted = {"error_class": None} | {key: value for key, value in case.expected.items() if key != "message"}
    assert {key: whole[key] for key in wanted} == wanted
    assert words in (whole["message"] or "")
    assert read(case, 7) == whole
    assert read(case, 1) == whole
