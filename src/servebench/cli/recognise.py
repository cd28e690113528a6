"""Know which server answers, by what it says: owner of its models, headers, names of its metrics, its own paths."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_OWNERS = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "nvidia": "Dynamo",
    "library": "Ollama",
    "servebench": "servebench sim",
}
_DIALECTS = {
    "servebench-sim": "servebench sim",
    "dynamo": "Dynamo",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tgi": "TGI",
    "llama.cpp": "llama.cpp",
    "triton": "Triton",
    "mlserver": "MLServer",
    "litellm": "LiteLLM",
}
NATIVE_ENDPOINT = {"TGI": "tgi-generate", "Triton": "triton-generate", "Ollama": "ollama-chat"}
"""Endpoint of servers that were recognised and have no OpenAI path."""


class Model(NamedTuple):
    """A served model; `context` in tokens, None where the server does not say."""

    name: str
    context: int | None


def server_name(*, headers: Mapping[str, str], owners: tuple[str, ...], dialect: str | None) -> str | None:
    """Return the server's name for people; None when nothing tells.

    A gateway is named before the engine behind it.
    """
    if (before := gateway(headers)) is not None:
        return before
    if dialect in _DIALECTS:
        return _DIALECTS[dialect]
    if headers.get("server", "").lower() == "llama.cpp":
        return "llama.cpp"
    return next((_OWNERS[owner] for owner in owners if owner in _OWNERS), None)


def kserve_server(about: Any) -> tuple[str | None, str]:  # noqa: ANN401 - whatever a server sends
    """Return server and endpoint, from the answer at /v2; None, and the usual endpoint, where it tells nothing."""
    name = about.get("name") if isinstance(about, dict) else None
    if not isinstance(name, str):
        return None, "openai-chat"
    known = _DIALECTS.get(name.lower(), name)
    return known, NATIVE_ENDPOINT.get(known, "kserve-v2")


def by_answer(asked: str | None, answered: str | None) -> str | None:
    """Return the server by what it calls the model: transformers serve names its revision too."""
    return "transformers serve" if asked is not None and answered == f"{asked}@main" else None


def gateway(header_names: Iterable[str]) -> str | None:
    """Return the gateway that an answer came through; its list of models may hide it."""
    return "LiteLLM" if any(name.startswith("x-litellm") for name in header_names) else None


def listed_models(page: Any) -> tuple[tuple[Model, ...], tuple[str, ...]]:  # noqa: ANN401 - whatever a server sends
    """Return the models of an OpenAI list and who owns them; none when it is no such list."""
    rows = page.get("data") if isinstance(page, dict) else None
    if not isinstance(rows, list):
        return (), ()
    found = [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
    models = tuple(Model(row["id"], _context(row)) for row in found)
    owners = tuple(owner.lower() for row in found if isinstance(owner := row.get("owned_by"), str))
    return models, owners


def ollama_models(page: Any) -> tuple[Model, ...]:  # noqa: ANN401 - whatever a server sends
    """Return the models of Ollama's /api/tags; none when it is no such list."""
    rows = page.get("models") if isinstance(page, dict) else None
    names = [row.get("name") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return tuple(Model(name, None) for name in names if isinstance(name, str))


def text_input(page: Any, usual: str) -> str | None:  # noqa: ANN401 - whatever a server sends
    """Return the input of text that a KServe model declares, where none is called `usual`; None: nothing to say."""
    rows = page.get("inputs") if isinstance(page, dict) else None
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    names = [row.get("name") for row in found if row.get("datatype") == "BYTES"]
    named = [name for name in names if isinstance(name, str) and name]
    return None if not named or usual in named else named[0]


def _context(row: Mapping[str, Any]) -> int | None:
    meta = row.get("meta")
    places = (
        row.get("max_model_len"),
        row.get("context_window"),
        meta.get("n_ctx") if isinstance(meta, dict) else None,
    )
    return next((value for value in places if isinstance(value, int) and value > 0), None)
