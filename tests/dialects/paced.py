"""A server whose events leave at fixed times, so far apart that each formula of each tool gives another number.

An answer is: response head and an event without text 40 ms after the request, the first token event after 240 to 280 ms
(by the request's number), 15 further ones every 20 ms, the finish reason 60 ms after the last, usage 60 ms later, and
[DONE] 60 ms after that. Every token event holds one word, which is one token of `tokenizer.py`.

Run by itself: python paced.py PORT.
"""

import asyncio
import contextlib
import itertools
import json
import sys

TOKENS = 16
PROMPT_TOKENS = 32
ROLE_S, FIRST_S, LATER_S, GAP_S, TAIL_S = 0.040, 0.240, 0.010, 0.020, 0.060
USAGE = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": TOKENS, "total_tokens": PROMPT_TOKENS + TOKENS}
TEXT = "the of and to in is was for that on with as by are this from"

_requests = itertools.count()


def _event(content: object) -> bytes:
    return f"data: {content if isinstance(content, str) else json.dumps(content)}\n\n".encode()


def _answer_of(choices: list[object], *, chat: bool) -> dict[str, object]:
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": "1", "object": kind, "model": "mock", "created": 1, "choices": choices}


def _choice(text: str, finish: str | None, *, chat: bool) -> dict[str, object]:
    delta = {"content": text} if text else {} if finish else {"role": "assistant", "content": ""}
    content = {"delta": delta} if chat else {"text": text}
    return _answer_of([{"index": 0, **content, "finish_reason": finish}], chat=chat)


def schedule(number: int, *, chat: bool) -> list[tuple[float, bytes]]:
    """Return when after the request each event of answer `number` leaves (s), and its bytes."""
    first = FIRST_S + LATER_S * (number % 5)
    last = first + GAP_S * (TOKENS - 1)
    said = TEXT.split()
    words = [(first + GAP_S * k, _event(_choice(f" {said[k]}", None, chat=chat))) for k in range(TOKENS)]
    return [
        (ROLE_S, _event(_choice("", None, chat=chat))),
        *words,
        (last + TAIL_S, _event(_choice("", "stop", chat=chat))),
        (last + 2 * TAIL_S, _event(_answer_of([], chat=chat) | {"usage": USAGE})),
        (last + 3 * TAIL_S, _event("[DONE]")),
    ]


async def _stream(writer: asyncio.StreamWriter, began: float, *, chat: bool) -> None:
    loop = asyncio.get_running_loop()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    for after_s, data in schedule(next(_requests), chat=chat):
        await asyncio.sleep(max(0.0, began + after_s - loop.time()))
        writer.write(head + b"%x\r\n%s\r\n" % (len(data), data))
        head = b""
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _whole(writer: asyncio.StreamWriter, content: object, status: str = "200 OK") -> None:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = head.split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            if fields.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            await _answer(writer, lines[0].split(" ")[1], json.loads(body) if body else {})
    writer.close()


async def _answer(writer: asyncio.StreamWriter, path: str, asked: dict[str, object]) -> None:
    began = asyncio.get_running_loop().time()
    chat = path.endswith("/chat/completions")
    if path.endswith("/completions") and asked.get("stream"):
        await _stream(writer, began, chat=chat)
    elif path.endswith("/completions"):
        choice = {"message": {"role": "assistant", "content": TEXT}} if chat else {"text": TEXT}
        _whole(writer, {"id": "1", "choices": [{"index": 0, "finish_reason": "stop", **choice}], "usage": USAGE})
    elif path.endswith("/models"):
        _whole(writer, {"object": "list", "data": [{"id": "mock", "object": "model"}]})
    elif path.endswith("/health"):
        _whole(writer, {})
    else:
        _whole(writer, {"error": {"message": "not here"}}, "404 Not Found")


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", int(sys.argv[1]))
    print(f"listening http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
