"""Know which requests the simulator accepts, and with which error bodies it refuses others, as vLLM would."""

from struct import pack
from typing import Annotated, Literal, NamedTuple

import msgspec

from servebench.sim.prompts import BYTES_PER_TOKEN, Prompt, chat_text, read_prompt

Endpoint = Literal["chat", "completions"]

_TOKEN_ID_BYTES = 8


class ApiError(Exception):
    """A refusal: an HTTP status and what the error body says."""

    def __init__(self, status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> bytes:
        """Return the JSON body of this error."""
        return error_body(self.status, str(self), kind=self.kind, param=self.param)


def error_body(status: int, message: str, *, kind: str, param: str | None = None) -> bytes:
    """Return an error object as vLLM writes it."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


class Generation(NamedTuple):
    """What one accepted request asks for. `max_tokens` None = no limit was sent."""

    endpoint: Endpoint
    prompt: Prompt
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | list[_Part] | None = None

    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
_NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class _Common(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    max_tokens: _AtLeastOne | None = None
    max_completion_tokens: _AtLeastOne | None = None
    min_tokens: _NotNegative = 0
    ignore_eos: bool = False
    n: int | None = 1
    temperature: float | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None


class _ChatBody(_Common, frozen=True, kw_only=True):
    messages: list[_Message]


class _CompletionBody(_Common, frozen=True, kw_only=True):
    prompt: str | list[str | int]


_DECODERS: dict[Endpoint, msgspec.json.Decoder[_ChatBody] | msgspec.json.Decoder[_CompletionBody]] = {
    "chat": msgspec.json.Decoder(_ChatBody),
    "completions": msgspec.json.Decoder(_CompletionBody),
}


def read_generation(endpoint: Endpoint, body: bytes, *, model: str, max_model_len: int) -> Generation:
    """Return what `body` asks for.

    Raises ApiError: 400 for broken JSON, wrong or missing fields, several choices or too many tokens; 404 for a model
    other than `model` (a missing one is taken as `model`).
    """
    try:
        asked = _DECODERS[endpoint].decode(body)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"1 validation error: {error}", kind="Bad Request", param="body") from error
    except msgspec.DecodeError as error:
        raise ApiError(400, f"1 validation error: json_invalid: {error}", kind="Bad Request", param="body") from error
    if asked.model is not None and asked.model != model:
        message = f"The model `{asked.model}` does not exist. Valid names: {model}."
        raise ApiError(404, message, kind="NotFoundError", param="model")
    _check_options(asked)
    prompt = _chat_prompt(asked) if isinstance(asked, _ChatBody) else _completion_prompt(asked)
    max_tokens = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    _check_length(prompt, max_tokens, max_model_len)
    options = asked.stream_options
    return Generation(
        endpoint=endpoint,
        prompt=prompt,
        max_tokens=max_tokens,
        min_tokens=asked.min_tokens,
        ignore_eos=asked.ignore_eos,
        stream=bool(asked.stream),
        include_usage=options is not None and options.include_usage,
    )


def _check_options(asked: _Common) -> None:
    if asked.n is not None and asked.n != 1:
        raise ApiError(400, f"n must be 1 here, got {asked.n}. (parameter=n, value={asked.n})", param="n")
    if asked.temperature is not None and asked.temperature < 0:
        value = asked.temperature
        message = f"temperature must be at least 0, got {value}. (parameter=temperature, value={value})"
        raise ApiError(400, message, param="temperature")
    if asked.stream_options is not None and not asked.stream:
        raise ApiError(400, "stream_options needs stream=true.", param="stream_options")


def _check_length(prompt: Prompt, max_tokens: int | None, max_model_len: int) -> None:
    if prompt.tokens >= max_model_len:
        message = (
            f"This model's maximum context length is {max_model_len} tokens, but the prompt has {prompt.tokens} "
            f"input tokens. (parameter=input_tokens, value={prompt.tokens})"
        )
        raise ApiError(400, message, param="input_tokens")
    if max_tokens is not None and prompt.tokens + max_tokens > max_model_len:
        message = (
            f"This model's maximum context length is {max_model_len} tokens: {max_tokens} output tokens do not fit "
            f"behind {prompt.tokens} input tokens. (parameter=max_tokens, value={max_tokens})"
        )
        raise ApiError(400, message, param="max_tokens")


def _chat_prompt(asked: _ChatBody) -> Prompt:
    if not asked.messages:
        raise ApiError(400, "messages must hold at least one message.", param="messages")
    return read_prompt(chat_text((message.role, message.text()) for message in asked.messages))


def _completion_prompt(asked: _CompletionBody) -> Prompt:
    prompt = asked.prompt
    if isinstance(prompt, str):
        return read_prompt(prompt.encode(), BYTES_PER_TOKEN)
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return read_prompt(prompt[0].encode(), BYTES_PER_TOKEN)
    ids = [token for token in prompt if isinstance(token, int)]
    if not ids or len(ids) != len(prompt):
        raise ApiError(400, "prompt must be one text or one list of token ids here.", param="prompt")
    return read_prompt(b"".join(pack("<q", token) for token in ids), _TOKEN_ID_BYTES)
