"""A field of requests that takes one text or several."""

from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError


def _check_texts(given: object) -> object:
    """Stop at the first entry that is not a string: pydantic's union makes an error for each."""
    if not isinstance(given, str | list):
        raise PydanticCustomError("texts", "input should be a string or a list of strings")
    if isinstance(given, list):
        for number, entry in enumerate(given):
            if not isinstance(entry, str):
                raise PydanticCustomError(
                    "texts", "entry {number} should be a string", {"number": number}
                )
    return given


Texts = Annotated[
    str | list[str],
    BeforeValidator(_check_texts),
]
"""A text, or several."""
