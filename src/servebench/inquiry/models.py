"""Know which model to ask a service for, and whether it would answer at all: the question before any load."""

import json
from dataclasses import dataclass

from servebench.core.errors import InputError
from servebench.core.target import REDIRECTS, Target, parse_target, redirected_path
from servebench.inquiry.call import Caller, CallError, Page, SilentError
from servebench.wire.approach import Approach

MODELS = "/v1/models"
MAX_REDIRECTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the service said. `model` None = none was asked for and it did not name exactly one."""

    model: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: by which way, for which model (None = the only one), and how a message says to name it.

    `redirects`: the load follows them, so the question does. `skip` is the way out where the answer may not matter.
    """

    approach: Approach
    model: str | None = None
    name_it: str = "--model "
    redirects: bool = False
    skip: str = ""


def find_model(question: Question) -> Found:
    """Ask a service for its models within 5 s.

    Raises InputError with reason and way out when load could not work: unreachable, wrong key, unknown model.
    """
    approach, caller = question.approach, Caller()
    path = approach.target.path(MODELS)
    try:
        page = caller.get(approach, path)
        for _ in range(MAX_REDIRECTS if question.redirects else 0):
            location = page.headers.get("location") if page.status in REDIRECTS else None
            onward = None if location is None else redirected_path(approach.target, path, location)
            if onward is None:
                break
            path = onward
            page = caller.get(approach, path)
    except SilentError as error:
        msg = f"{error}{question.skip}"
        raise InputError(msg) from error
    except CallError as error:
        msg = f"{error}{_other_scheme(approach.target)}"
        raise InputError(msg) from error
    finally:
        caller.close()
    return judge(question, page)


def judge(question: Question, page: Page) -> Found:
    """Return the model to ask for, from the answer to GET /v1/models.

    Raises InputError where the answer means that requests would fail.
    """
    asked = f"GET {question.approach.target.url_of(MODELS)} answered {page.status}"
    if page.status in {401, 403}:
        raise InputError(_key_message(page.status, has_key=question.approach.has_key))
    if page.status == 407:
        msg = "the proxy wants user and password (407).\n  try: SERVEBENCH_PROXY=http://USER:PASSWORD@HOST:PORT"
        raise InputError(msg)
    if 300 <= page.status < 400:
        msg = f"{asked}, a redirect, which load does not follow.\n  try: --url {_redirect_target(page)}"
        raise InputError(msg)
    if page.status >= 500 and page.status != 501:
        msg = f"{asked}: is the model still loading?{question.skip}"
        raise InputError(msg)
    if page.status != 200:
        return Found(model=question.model, notes=(f"{asked}, so the model was not checked.",))
    served = model_ids(page.body)
    if not served:
        return Found(model=question.model, notes=(f"{asked} without a list of models, so the model was not checked.",))
    return _choose(served, question)


def model_ids(body: bytes) -> tuple[str, ...]:
    """Return the ids of an OpenAI model list; none when the body is not one."""
    try:
        rows = json.loads(body)["data"]
        return tuple(row["id"] for row in rows if isinstance(row["id"], str))
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def _choose(served: tuple[str, ...], question: Question) -> Found:
    model, way_out = question.model, f"\n  try: {question.name_it}{served[0]}"
    shown = ", ".join(served[:10]) + (f" and {len(served) - 10} more" if len(served) > 10 else "")
    if model is None and len(served) == 1:
        return Found(model=served[0], notes=(f"Model: {served[0]}, the only one served.",))
    if model is None:
        msg = f"the server serves {len(served)} models and none was asked for: {shown}.{way_out}"
        raise InputError(msg)
    if model not in served:
        msg = f'the server does not serve "{model}". It serves: {shown}.{way_out}'
        raise InputError(msg)
    return Found(model=model)


def _key_message(status: int, *, has_key: bool) -> str:
    if has_key:
        return f"the server refuses the key that is set ({status}).\n  try: another SERVEBENCH_API_KEY"
    way_out = "export SERVEBENCH_API_KEY=…  (or SERVEBENCH_API_KEY_FILE)"
    return f"the server wants a key ({status}) and none is set.\n  try: {way_out}"


def _redirect_target(page: Page) -> str:
    try:
        return parse_target(page.headers.get("location", "")).redacted.removesuffix(MODELS)
    except InputError:
        return "the address that it redirects to"


def _other_scheme(target: Target) -> str:
    return f"\n  try: --url https://{target.authority}{target.base_path}" if target.scheme == "http" else ""
