"""Know the exact bytes of a streamed answer: events as vLLM shapes them, each in one HTTP chunk.

The beginning of every event of one answer is the same, and as long for every answer of one server. So the end of each
event and its chunk length are made once per word, and a token costs one join of three byte strings.
"""

import json
from typing import NamedTuple

from servebench.sim.api import Endpoint
from servebench.sim.vocabulary import WORDS

LAST_CHUNK = b"0\r\n\r\n"
"""End of a chunked body."""

ID_DIGITS = 16
"""Hexadecimal digits of a response id after its prefix; fixed, so that chunk lengths are."""

_ID_PREFIX: dict[Endpoint, str] = {"chat": "chatcmpl-", "completions": "cmpl-"}
_OBJECT: dict[Endpoint, str] = {"chat": "chat.completion.chunk", "completions": "text_completion"}
_ROLE_END = (
    b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
    b'"prompt_token_ids":null,"prompt_text":null}\n\n'
)


class Usage(NamedTuple):
    """Token counts as an answer reports them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def json(self) -> str:
        """Return the JSON object."""
        return (
            f'{{"prompt_tokens":{self.prompt_tokens},"total_tokens":{self.prompt_tokens + self.completion_tokens},'
            f'"completion_tokens":{self.completion_tokens},'
            f'"prompt_tokens_details":{{"cached_tokens":{self.cached_tokens}}}}}'
        )


def chunk(payload: bytes) -> bytes:
    """Return `payload` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class Frames:
    """Ready-made bytes for the events of one endpoint of one served model."""

    def __init__(self, endpoint: Endpoint, model: str, fingerprint: str) -> None:
        self.endpoint = endpoint
        self._model = json.dumps(model)
        self._fingerprint = f'"system_fingerprint":{json.dumps(fingerprint)}'
        width = len(self.opening("0" * ID_DIGITS, 1_000_000_000))
        ends = [self._token_end(f" {word}", None) for word in WORDS]
        self.heads = [b"%x\r\n" % (width + len(end)) for end in ends]
        self.tails = [end + b"\r\n" for end in ends]

    def opening(self, identity: str, created_s: int) -> bytes:
        """Return the bytes that every event of one answer begins with."""
        return (
            f'data: {{"id":"{_ID_PREFIX[self.endpoint]}{identity}","object":"{_OBJECT[self.endpoint]}",'
            f'"created":{created_s},"model":{self._model},"choices":['
        ).encode()

    def role(self, opening: bytes) -> bytes:
        """Return the first event of a chat, which names the role and carries no text."""
        return chunk(opening + _ROLE_END)

    def last(self, opening: bytes, text: str, finish_reason: str, *, usage_follows: bool) -> bytes:
        """Return the event with the finish reason; the fingerprint is on it unless usage follows."""
        return chunk(opening + self._token_end(text, finish_reason, fingerprint=not usage_follows))

    def usage(self, opening: bytes, usage: Usage) -> bytes:
        """Return the event without choices that carries the token counts."""
        return chunk(opening + f'],"usage":{usage.json()},{self._fingerprint}}}\n\n'.encode())

    def whole(self, identity: str, created_s: int, text: str, finish_reason: str, usage: Usage) -> bytes:
        """Return the JSON body of an answer that is not streamed."""
        if self.endpoint == "chat":
            kind = "chat.completion"
            said = f'"message":{{"role":"assistant","content":{json.dumps(text)},"refusal":null,"reasoning":null}}'
        else:
            kind = "text_completion"
            said = f'"text":{json.dumps(text)}'
        return (
            f'{{"id":"{_ID_PREFIX[self.endpoint]}{identity}","object":"{kind}","created":{created_s},'
            f'"model":{self._model},"choices":[{{"index":0,{said},"logprobs":null,'
            f'"finish_reason":"{finish_reason}","stop_reason":null,"token_ids":null}}],"service_tier":null,'
            f'{self._fingerprint},"usage":{usage.json()}}}'
        ).encode()

    def _token_end(self, text: str, finish_reason: str | None, *, fingerprint: bool = False) -> bytes:
        reason = "null" if finish_reason is None else json.dumps(finish_reason)
        close = f",{self._fingerprint}}}" if fingerprint else "}"
        if self.endpoint == "chat":
            stop = "" if finish_reason is None else '"stop_reason":null,'
            choice = (
                f'{{"index":0,"delta":{{"content":{json.dumps(text)}}},"logprobs":null,"finish_reason":{reason},'
                f'{stop}"token_ids":null}}]'
            )
        else:
            choice = (
                f'{{"index":0,"text":{json.dumps(text)},"logprobs":null,"finish_reason":{reason},"stop_reason":null,'
                f'"prompt_token_ids":null,"token_ids":null}}]'
            )
        return f"{choice}{close}\n\n".encode()


DONE = chunk(b"data: [DONE]\n\n")
"""The event that ends an answer."""


def error_event(body: bytes) -> bytes:
    """Return the event that carries an error object inside a stream."""
    return chunk(b"data: " + body + b"\n\n")
