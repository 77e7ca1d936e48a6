"""Parse forms, of both kinds.

Clients that have not sent a key yet can send them. So parsing takes time and memory linear in a
body's size; parsers for e-mail do not, with their comments, encoded words and nested parts.
"""

import re
from binascii import a2b_qp
from typing import NamedTuple

from headwise.serving.limits import RefusedError

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")

_MOST_FIELDS = 1000
_MOST_LONE_PERCENTS = 1000
_LONGEST_HEAD = 1000
"""Most bytes of a part's header lines."""

_LONE_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s";]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb';\s*name=(?:"([^"]*)"|([^\s";]+))', re.IGNORECASE)
_FILE_NAME = re.compile(rb";\s*filename\*?=", re.IGNORECASE)
_DISPOSITION = b"content-disposition:"


def media_type(content_type: str) -> str:
    """Return a Content-Type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def form_fields(content_type: str, body: bytes) -> dict[str, list[str]]:
    """Return the values of each field of a form of either kind."""
    kind = media_type(content_type)
    if kind not in FORMS:
        raise RefusedError(415, f"send a form, with one of the Content-Types {', '.join(FORMS)}")
    if kind != FORMS[1]:
        return urlencoded_fields(body)
    fields: dict[str, list[str]] = {}
    for part in form_parts(content_type, body):
        fields.setdefault(part.name, []).append(text_of(part.content))
    return fields


def urlencoded_fields(content: bytes) -> dict[str, list[str]]:
    """Return the values of each field of an URL-encoded form or query."""
    pairs = content.split(b"&", _MOST_FIELDS)
    if len(pairs) > _MOST_FIELDS:
        raise RefusedError(400, f"a form may have at most {_MOST_FIELDS:,} fields")
    fields: dict[str, list[str]] = {}
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        if pair:
            fields.setdefault(_unquoted(name), []).append(_unquoted(value))
    return fields


def _unquoted(quoted: bytes) -> str:
    """Decode `+` and `%XX`.

    Quoted-printable only has "=" instead of "%", and is decoded in C: `urllib.parse` makes a list
    of all escapes, which takes 190 MB and 0.3 seconds for 1 MB of them.
    """
    escaped, lone = _LONE_PERCENT.subn(b"%25", quoted, _MOST_LONE_PERCENTS)
    if lone == _MOST_LONE_PERCENTS:
        raise _no_form()
    marked = escaped.replace(b"+", b" ").replace(b"=", b"%3D").replace(b"%", b"=")
    return text_of(a2b_qp(marked))


def text_of(content: bytes) -> str:
    """Decode UTF-8, or raise RefusedError."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(400, "the body is not UTF-8 text") from error


class FormPart(NamedTuple):
    """A part of a multipart form."""

    name: str
    content: bytes
    is_file: bool
    """Whether it has the name of a file, whatever that is."""


def form_parts(content_type: str, body: bytes) -> list[FormPart]:
    """Return the parts of a multipart form (RFC 7578)."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise _no_form()
    boundary = b"\r\n--" + (found[1] or found[2]).encode("latin-1", "replace")
    # The first boundary has no line before it. Text before it and after the last is ignored.
    first = boundary[2:]
    start = len(first) if body.startswith(first) else _after(body, boundary)
    found_parts: list[FormPart] = []
    # Nothing is copied but the contents: files are large.
    while start >= 0 and not body.startswith(b"--", start):
        next_start = _after(body, boundary, start)
        end = next_start - len(boundary)
        line = body.find(b"\r\n\r\n", start, min(end, start + _LONGEST_HEAD + 4))
        is_whole = next_start >= 0 and line >= 0 and body.startswith(b"\r\n", start)
        if not is_whole or len(found_parts) == _MOST_FIELDS:
            raise _no_form()
        name, is_file = _disposition(body[start:line])
        found_parts.append(FormPart(name, body[line + 4 : end], is_file))
        start = next_start
    if start < 0:
        raise _no_form()
    return found_parts


def _after(body: bytes, boundary: bytes, start: int = 0) -> int:
    """Return where the next boundary ends; -1 if there is none."""
    found = body.find(boundary, start)
    return found if found < 0 else found + len(boundary)


def _disposition(head: bytes) -> tuple[str, bool]:
    """Return the field's name from a part's header lines, and whether it is a file."""
    for line in head.split(b"\r\n"):
        if line.lower().startswith(_DISPOSITION) and (found := _NAME.search(line)):
            name = text_of(found[1] if found[1] is not None else found[2])
            return name, _FILE_NAME.search(line) is not None
    raise _no_form()


def _no_form() -> RefusedError:
    return RefusedError(400, "the body is not a form of its Content-Type")
