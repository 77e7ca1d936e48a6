"""Parsing takes little memory, whatever the body."""

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from headwise.serving.bodies import checked, is_json, read_json
from headwise.serving.forms import form_fields, urlencoded_fields
from headwise.serving.libretranslate import LibreRequest, fields_of
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.translation_api import AttentionRequest, TranslateRequest

LIMITS = Limits(body_bytes=1_000_000)
JSON = "application/json"
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"


def filled(begin: str, unit: str, end: str) -> bytes:
    """Repeat something to make a body as large as a body may be."""
    room = LIMITS.body_bytes - len(begin.encode()) - len(end.encode())
    return (begin + unit * (room // len(unit.encode())) + end).encode()


def keys(template: str) -> bytes:
    """An object with as many distinct keys as fit into a body."""
    size = len(template % 100_000) + 1
    return (
        b"{%s}"
        % ",".join(
            template % number for number in range(100_000, 100_000 + 999_000 // size)
        ).encode()
    )


HOSTILE_JSON = {
    "numbers": filled('{"q":[', "1,", "1]}"),
    "nulls": filled('{"q":["a",', "null,", "1]}"),
    "empty objects": filled('{"q":[', "{},", "{}]}"),
    "empty lists": filled('{"q":[', "[],", "[]]}"),
    "empty strings": filled('{"q":[', '"",', '""]}'),
    "strings without commas": filled('{"q":[', '""', "]}"),
    "quotes": filled("", '"', ""),
    "open lists": filled("", "[", ""),
    "open objects": filled("", '{"q":', ""),
    "closed lists": b"[" * 500_000 + b"]" * 500_000,
    "unknown keys": keys('"k%d":1'),
    "one key again and again": filled("{", '"q":1,', '"q":1}'),
    "one long key": filled('{"', "k", '":1}'),
    "a long integer": filled('{"q":"a","nbest":', "1", "}"),
    "a long fraction": filled('{"q":"a","alpha":1.', "1", "}"),
    "a long exponent": filled('{"q":"a","alpha":1e', "9", "}"),
    "a long string of digits": filled('{"q":"a","nbest":"', "1", '"}'),
    "a string": filled('{"q":"', "a", '"}'),
    "a string of commas and brackets": filled('{"q":"', ",[{", '"}'),
    "a string of wide characters": filled('{"q":"', "😀", '"}'),
    "one wide character": filled('{"q":"😀', "a", '"}'),
    "five hundred strings with one wide character": json.dumps(
        {"q": ["😀" + "a" * 1980] * 500}, ensure_ascii=False
    ).encode(),
    "escapes": filled('{"q":"', "\\n", '"}'),
    "escapes and letters": filled('{"q":"', "a\\n", '"}'),
    "halves of surrogate pairs": filled('{"q":"', "\\ud800", '"}'),
    "backslashes without an end": filled('{"q":"', "\\", ""),
    "a string without an end": filled('{"q":"', "a", ""),
    "white space": filled('{"q":', " ", '"a"}'),
    "line ends": filled("", "\n", "x"),
    "UTF-16": ('{"q":[' + "1," * 240_000 + "1]}").encode("utf-16"),
}
HOSTILE_FORMS = {
    "escapes": (URLENCODED, filled("q=", "%41", "")),
    "lone percent signs": (URLENCODED, filled("q=", "%", "")),
    "escapes of wide characters": (URLENCODED, filled("q=", "%f0%9f%98%80", "")),
    "plus signs": (URLENCODED, filled("q=", "+", "")),
    "equals signs": (URLENCODED, filled("q", "=", "")),
    "separators": (URLENCODED, filled("q", "&", "")),
    "fields": (URLENCODED, filled("q=a", "&a=b", "")),
    "boundaries": (MULTIPART, filled("", "--b\r\n", "--b--")),
    "line ends": (MULTIPART, filled("--b", "\r\n", "--b--")),
    "one wide character": (
        MULTIPART,
        filled('--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n😀', "a", "\r\n--b--"),
    ),
}


def peak_bytes(work: Callable[[], object]) -> int:
    """Return how much memory something takes at most."""
    tracemalloc.start()
    try:
        with suppress(RefusedError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refusal_of(work: Callable[[], object]) -> RefusedError | None:
    try:
        work()
    except RefusedError as refusal:
        return refusal
    return None


@pytest.mark.parametrize("kind", [TranslateRequest, AttentionRequest, LibreRequest])
@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_json_takes_little_memory_and_makes_one_error(
    name: str, kind: type[BaseModel]
) -> None:
    body = HOSTILE_JSON[name]
    assert 900_000 < len(body) <= LIMITS.body_bytes
    assert peak_bytes(lambda: checked(kind, fields_of(JSON, body, LIMITS))) < 15_000_000
    refusal = refusal_of(lambda: checked(kind, read_json(body, LIMITS)))
    cause = refusal and refusal.__cause__
    # Libre's source and target are missing in all of them.
    most = 3 if kind is LibreRequest else 1
    assert not isinstance(cause, ValidationError) or cause.error_count() <= most
    assert len(str(refusal)) < 200


@pytest.mark.parametrize("name", HOSTILE_FORMS)
def test_hostile_forms_take_little_memory(name: str) -> None:
    content_type, body = HOSTILE_FORMS[name]
    assert 900_000 < len(body) <= LIMITS.body_bytes
    work = lambda: checked(LibreRequest, fields_of(content_type, body, LIMITS))  # noqa: E731
    assert peak_bytes(work) < 15_000_000


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"q": [' + b"1," * 1000 + b"1]}", 413, "too many values: send at most 500 texts"),
        (b'{"a": 1, "b": }', 400, "the body is not JSON: see line 1, column 15"),
        (b'\xef\xbb\xbf{"q": "a"}', 400, "the body is not JSON: see line 1, column 1"),
        (b'{"q": %s}' % (b"1" * 5000), 400, "a number with too many digits"),
        (b"[1]", 400, "must be a JSON object"),
        (b"", 400, "the body is not JSON"),
        ('{"q": "a"}'.encode("utf-16"), 400, "not UTF-8"),
    ],
)
def test_json_that_cannot_be_a_request_is_refused(body: bytes, status: int, words: str) -> None:
    with pytest.raises(RefusedError, match=words) as caught:
        read_json(body, LIMITS)
    assert caught.value.status == status


def test_nesting_is_limited_even_if_many_texts_are_allowed() -> None:
    with pytest.raises(RefusedError, match="too many nested lists or objects"):
        read_json(b"[" * 200_000, Limits(texts=1_000_000))


def test_brackets_within_strings_are_not_counted() -> None:
    fields = {"q": ['[{,"\\' * 50] * 500, "a": 1.5, "b": {"c": [None, True]}, "\\": ""}
    for text in (json.dumps(fields), json.dumps(fields, indent=4)):
        assert read_json(text.encode(), LIMITS) == fields


@given(st.recursive(st.none() | st.floats(allow_nan=False) | st.text(), st.lists, max_leaves=50))
def test_json_is_parsed_as_by_the_standard_library(value: object) -> None:
    fields = {"q": value}
    assert read_json(json.dumps(fields).encode(), LIMITS) == fields


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (TranslateRequest, {"q": ["a"] + [1] * 500}, "q: entry 1 should be a string"),
        (TranslateRequest, {"q": {"a": 1}}, "q: input should be a string or a list of strings"),
        (TranslateRequest, {"q": "a", "x" * 1000: 1}, "^" + "x" * 60 + ": there is no such field"),
        (AttentionRequest, {"q": ["a"]}, "q: input should be a valid string"),
        (LibreRequest, {"q": "a", "source": "en", "ignored": 1}, "target: field required"),
    ],
)
def test_the_first_wrong_field_is_named(
    kind: type[TranslateRequest], fields: dict[str, object], words: str
) -> None:
    with pytest.raises(RefusedError, match=words) as caught:
        checked(kind, fields)
    cause = caught.value.__cause__
    assert cause is None or (isinstance(cause, ValidationError) and cause.error_count() == 1)


def test_content_types_of_json() -> None:
    for content_type in (JSON, "Application/JSON; charset=utf-8", "application/problem+json"):
        assert is_json(content_type)
    for content_type in ("", "text/plain", "text/json-not", URLENCODED, "application/jsonp"):
        assert not is_json(content_type)
        if content_type != URLENCODED:
            with pytest.raises(RefusedError, match="Content-Types application/json, ") as caught:
                fields_of(content_type, b"{}", LIMITS)
            assert caught.value.status == 415
            with pytest.raises(RefusedError, match="send a form"):
                form_fields(content_type, b"q=a")


PIECES = ["q", "=", "&", "+", "%", "%3D", "%3d", "%0A", "%c3%a9", "%ff", "4", "é", "😀", "\r\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_forms_are_parsed_as_by_the_standard_library(form: str) -> None:
    try:
        expected = parse_qs(form, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        with pytest.raises(RefusedError, match="not UTF-8"):
            urlencoded_fields(form.encode())
    else:
        assert urlencoded_fields(form.encode()) == expected


def test_a_percent_sign_without_an_escape_is_kept() -> None:
    assert urlencoded_fields(b"q=50%+of+%C3%A9%3D=%&&r") == {"q": ["50% of é==%"], "r": [""]}
