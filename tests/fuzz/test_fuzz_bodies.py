"""Bodies of requests: forms of both kinds, and JSON."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import strategies as st
from pydantic import BaseModel

from headwise.serving.bodies import checked, read_json
from headwise.serving.forms import form_fields
from headwise.serving.libretranslate import LibreRequest, fields_of
from headwise.serving.limits import Limits
from headwise.serving.translation_api import AttentionRequest, TranslateRequest
from tests.fuzz.conftest import Fuzz
from tests.fuzz.contract import result_or_refusal
from tests.fuzz.mutations import mutated, mutated_json

URLENCODED = urlencode(
    [("q", "a b&c=d"), ("q", "é\n"), ("source", "xx"), ("target", "yy"), ("alternatives", "3")]
).encode()

MULTIPART = (
    b'--boundary\r\nContent-Disposition: form-data; name="q"\r\n\r\na text\r\n'
    b"--boundary\r\nContent-Type: text/plain\r\n"
    b"Content-Disposition: form-data; name=source\r\n\r\nxx\r\n--boundary--\r\n"
)

content_types = st.one_of(
    st.just("multipart/form-data; boundary=boundary"),
    st.sampled_from(
        [
            'multipart/form-data; boundary="a b"',
            'multipart/form-data; boundary=""',
            "multipart/form-data; boundary=é",
            "multipart/form-data",
            "application/x-www-form-urlencoded; charset=utf-16",
            "text/plain",
            "",
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=50).map("multipart/form-data;{}".format),
)

REQUESTS: dict[type[BaseModel], dict[str, Any]] = {
    TranslateRequest: {
        "q": ["a", "b c"],
        "model": "run",
        "source": "xx",
        "target": "yy",
        "nbest": 2,
        "beam": 4,
        "alpha": 0.6,
        "min_length": 1,
        "split": True,
        "alignment": False,
        "token_scores": True,
    },
    AttentionRequest: {"q": "a b", "model": "run", "source": "xx", "target": "yy"},
    LibreRequest: {
        "q": ["a"],
        "source": "auto",
        "target": "yy",
        "format": "text",
        "alternatives": 1,
        "api_key": "k",
    },
}


def read_form(content_type: str, body: bytes) -> None:
    fields = result_or_refusal(form_fields, content_type, body)
    for name, values in (fields or {}).items():
        assert name.encode() is not None
        assert all(isinstance(value.encode(), bytes) for value in values)


def test_urlencoded_forms(fuzz: Fuzz) -> None:
    fuzz(
        mutated(URLENCODED) | st.binary(max_size=200),
        lambda body: read_form("application/x-www-form-urlencoded", body),
    )


def test_multipart_forms(fuzz: Fuzz) -> None:
    fuzz(
        st.tuples(content_types, mutated(MULTIPART) | st.binary(max_size=200)),
        lambda form: read_form(*form),
    )


def read_request(kind: type[BaseModel], body: bytes) -> None:
    result_or_refusal(lambda: checked(kind, read_json(body, Limits())))


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_json_requests(kind: type[BaseModel], fuzz: Fuzz) -> None:
    valid = REQUESTS[kind]
    fuzz(
        mutated_json(valid) | mutated(json.dumps(valid).encode()),
        lambda body: read_request(kind, body),
    )


def test_libretranslate_bodies_of_any_content_type(fuzz: Fuzz) -> None:
    bodies = (
        mutated(URLENCODED)
        | mutated(MULTIPART)
        | mutated_json(REQUESTS[LibreRequest])
        | st.binary(max_size=100)
    )

    def read(request: tuple[str, bytes]) -> None:
        result_or_refusal(lambda: checked(LibreRequest, fields_of(*request, Limits())))

    kinds = content_types | st.sampled_from(["application/json", "application/ld+json; x"])
    fuzz(st.tuples(kinds, bodies), read)
