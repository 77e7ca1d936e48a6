"""From a body to a checked request, in little memory whatever the body holds.

`json.loads` alone makes a megabyte of `{},{},` twenty times as large, and pydantic makes an error
for every wrong entry of a list. So the values of a body are counted before any of them is made.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from headwise.serving.errors import sentence_of, unknown_field
from headwise.serving.forms import media_type, text_of
from headwise.serving.limits import Limits, RefusedError

R = TypeVar("R", bound=BaseModel)

_NEXT_VALUE = re.compile(rb'(?:[^"\[{,]++|"(?:[^"\\]++|\\.)*+"?)*+[\[{,]', re.DOTALL)
"""Everything up to and including the next mark that a value may follow, strings skipped whole.

All quantifiers are possessive: the time is linear, and no positions to return to are kept.
"""
_OTHER_VALUES = 100
"""Values that a body may have besides its texts: more than any request has fields."""


def is_json(content_type: str) -> bool:
    """Return whether a Content-Type stands for JSON."""
    kind = media_type(content_type)
    return kind == "application/json" or kind.endswith("+json")


async def json_request(request: Request, kind: type[R], limits: Limits) -> R:
    """Return the request in a body that must be JSON, and declared as JSON.

    A page of another site can send text/plain, forms and bodies without a type to this server
    without asking the browser first, but not JSON.
    """
    if not is_json(request.headers.get("content-type", "")):
        raise RefusedError(415, "send JSON, with the header 'Content-Type: application/json'")
    return checked(kind, read_json(await request.body(), limits))


def read_json(body: bytes, limits: Limits) -> dict[str, Any]:
    """Return the fields of a JSON object that has no more values than a request may need."""
    if _has_more_values(body, limits.texts + _OTHER_VALUES):
        raise RefusedError(
            413, f"the body has too many values: send at most {limits.texts:,} texts in one request"
        )
    # Decoded here, as json.loads also accepts UTF-16 and UTF-32.
    text = text_of(body)
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise RefusedError(
            400, f"the body is not JSON: see line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise RefusedError(400, "the body has too many lists or objects within others") from error
    except ValueError as error:
        raise RefusedError(400, "the body has a number with too many digits") from error
    if not isinstance(fields, dict):
        raise RefusedError(400, "the body must be a JSON object: {...}")
    return fields


def checked(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Return fields as a request; the first wrong one is named in the refusal."""
    known = {name: fields[name] for name in kind.model_fields if name in fields}
    if kind.model_config.get("extra") == "forbid" and len(known) < len(fields):
        raise RefusedError(400, unknown_field(next(name for name in fields if name not in known)))
    try:
        return kind.model_validate(known)
    except ValidationError as error:
        raise RefusedError(400, sentence_of(error)) from error


def _has_more_values(body: bytes, most: int) -> bool:
    end = 0
    for _ in range(most):
        found = _NEXT_VALUE.match(body, end)
        if found is None:
            return False
        end = found.end()
    return True
