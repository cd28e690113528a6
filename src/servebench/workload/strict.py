"""Know how a model of the file checks: strictly, and with words of our own for rules between keys."""

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Strict(BaseModel):
    """Refuses unknown keys, changes no type, cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def wrong(message: str, *place: str | int) -> PydanticCustomError:
    """Return the error of a rule between keys; `place` goes on from the model or field that is being checked."""
    # Values can hold braces, which the error's template would take for its own.
    return PydanticCustomError("rule", "{message}", {"message": message, "place": place})
