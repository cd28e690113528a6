"""Know the Open Inference Protocol (KServe v2): tensors in, tensors out, whole or one response per event.

Followed: the protocol's REST description (github.com/kserve/open-inference-protocol); MLServer's `infer_stream` for
events, which end with the body.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from servebench.core.records import Message
from servebench.wire.dialect import CONTENT, NOTHING, OTHER, compact, failed, no_answer, prompt_text, typed_decoder
from servebench.wire.endpoint import Delta, Ending, Endpoint, ParamValue


class _Output(msgspec.Struct, gc=False):
    datatype: str | None = None
    data: Any = None


class _Response(msgspec.Struct, gc=False):
    model_name: str | None = None
    outputs: list[_Output] | None = None
    error: Any = None


TEXT_INPUT = "prompt"
_MAY_BE_TEXT = frozenset({"BYTES", None})


def body(
    *,
    model: str | None,
    messages: Sequence[Message],
    max_tokens: int | None,
    stream: bool,
    params: Mapping[str, ParamValue],
) -> bytes:
    """Return the request body: one input of text; the rest are parameters of the request.

    The param `input_name` names the input, `prompt` without it; it is not sent.
    """
    rest = {key: value for key, value in params.items() if key != "input_name"}
    tensor = {
        "name": str(params.get("input_name") or TEXT_INPUT),
        "shape": [1],
        "datatype": "BYTES",
        "parameters": {"content_type": "str"},
        "data": [prompt_text(messages)],
    }
    parameters = compact({"max_tokens": max_tokens}, rest)
    return msgspec.json.encode(compact({"inputs": [tensor], "parameters": parameters or None}))


def _read(response: _Response) -> Delta:
    """Return what a response says; `seen` is 0 for an object without outputs."""
    if response.error:
        return failed(response.error)
    if not response.outputs:
        return NOTHING
    text = None
    for output in response.outputs:
        text = _text(output.data) if output.datatype in _MAY_BE_TEXT else None
        if text:
            break
    return Delta(CONTENT if text else OTHER, text=text or None, seen=1, model=response.model_name)


def _text(data: object) -> str | None:
    """Return the strings of a tensor as one text, None for data that is no list."""
    if not isinstance(data, list):
        return None
    try:
        return "".join(data)
    except TypeError:
        return "".join(_strings(data))


def _strings(data: object) -> Iterator[str]:
    """Yield the strings of a tensor, nested as its shape or flat, in order."""
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            waiting.extend(reversed(item))


decode_event = typed_decoder(_Response, _read)


def decode_body(payload: bytes) -> Delta:
    """Return what a whole answer says; raises PayloadError for an object without outputs."""
    delta = decode_event(payload)
    if delta.error is None and not delta.seen:
        raise no_answer(payload, "outputs")
    return msgspec.structs.replace(delta, ended=delta.seen)


KSERVE_V2 = Endpoint(
    name="kserve-v2",
    path="/v2/models/{model}/infer_stream",
    whole_path="/v2/models/{model}/infer",
    body=body,
    decode_event=decode_event,
    decode_body=decode_body,
    ending=Ending.BODY,
    text_input=TEXT_INPUT,
    counts=False,
)
