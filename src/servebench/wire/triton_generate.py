"""Know the dialect of Triton's generate extension: an object of the model's outputs per event, and no word of the end.

Followed: "Generate Extension" of the Triton Inference Server; KServe's extension of that name is the same. The names
of inputs and outputs are the model's own: `text_input` and `text_output` are what its LLM backends use.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from servebench.core.records import Message
from servebench.wire.dialect import CONTENT, OTHER, compact, failed, no_answer, prompt_text, typed_decoder
from servebench.wire.endpoint import Delta, Ending, Endpoint, ParamValue
from servebench.wire.lenient import join_parts

TEXT_INPUT = "text_input"
_NOT_TEXT = frozenset({"model_name", "model_version", "id", "finish_reason", "error"})


def body(
    *,
    model: str | None,
    messages: Sequence[Message],
    max_tokens: int | None,
    stream: bool,
    params: Mapping[str, ParamValue],
) -> bytes:
    """Return the request body; the server makes inputs or parameters of all members, as the model declares them.

    The param `input_name` names the input that takes the text; it is not sent.
    """
    rest = {key: value for key, value in params.items() if key != "input_name"}
    name = str(params.get("input_name") or TEXT_INPUT)
    fields = {name: prompt_text(messages), "max_tokens": max_tokens, "stream": stream}
    return msgspec.json.encode(compact(fields, rest))


def _read(outputs: dict[str, Any]) -> Delta:
    if outputs.get("error"):
        return failed(outputs["error"])
    text = _text(outputs)
    model, finish = outputs.get("model_name"), outputs.get("finish_reason")
    return Delta(
        CONTENT if text else OTHER,
        text=text or None,
        finish=finish if isinstance(finish, str) and finish else None,
        seen=1,
        model=model if isinstance(model, str) else None,
    )


def _text(outputs: dict[str, Any]) -> str | None:
    """Return the text of `text_output`, else of the first output that is text."""
    if "text_output" in outputs:
        return join_parts(outputs["text_output"])
    texts = (join_parts(value) for name, value in outputs.items() if name not in _NOT_TEXT)
    return next((text for text in texts if text), None)


decode_event = typed_decoder(dict[str, Any], _read)


def decode_body(payload: bytes) -> Delta:
    """Return what a whole answer says; raises PayloadError for an object that names no model and has no text."""
    delta = decode_event(payload)
    if delta.error is None and delta.text is None and delta.model is None:
        raise no_answer(payload, "outputs")
    return msgspec.structs.replace(delta, ended=delta.seen)


TRITON_GENERATE = Endpoint(
    name="triton-generate",
    path="/v2/models/{model}/generate_stream",
    whole_path="/v2/models/{model}/generate",
    body=body,
    decode_event=decode_event,
    decode_body=decode_body,
    ending=Ending.BODY,
    text_input=TEXT_INPUT,
    counts=False,
)
