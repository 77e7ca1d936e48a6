"""Forms, good and hostile."""

import time
from contextlib import suppress

import pytest

from headwise.serving.forms import form_fields
from headwise.serving.limits import RefusedError
from headwise.serving.sessions import _cookie_value

KIND = "multipart/form-data; boundary=b"
SIZE = 990_000


def part(name: str, content: str, more: str = "") -> str:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{content}\r\n'


def test_a_form_in_parts_is_read() -> None:
    body = part("q", "eins\r\nzwei\r\n") + part("q", "") + part("target", "dé") + "--b--\r\n"
    expected = {"q": ["eins\r\nzwei\r\n", ""], "target": ["dé"]}
    for kind in (KIND, 'multipart/form-data; charset=utf-8; boundary="b"', KIND.replace(";", " ;")):
        assert form_fields(kind, body.encode()) == expected
    file = part("q", "ban", '; filename="name=x.txt"\r\nContent-Type: text/plain')
    assert form_fields(KIND, f"before\r\n{file}--b--after".encode()) == {"q": ["ban"]}
    bare = b"--b\r\ncontent-disposition:form-data;name=q\r\n\r\nban\r\n--b--"
    assert form_fields(KIND, bare) == {"q": ["ban"]}


def test_a_form_in_one_line_is_read() -> None:
    kind = "application/x-www-form-urlencoded; charset=utf-8"
    assert form_fields(kind, b"q=ban+dora&q=%C3%A9&source=") == {
        "q": ["ban dora", "é"],
        "source": [""],
    }
    with pytest.raises(RefusedError, match="1,000 fields at most"):
        form_fields(kind, b"&".join([b"a=b"] * 1001))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", part("q", "ban") + "--b--"),
        (KIND, ""),
        (KIND, part("q", "ban")),
        (KIND, part("q", "ban") + "--bc\r\n--b--"),
        (KIND, "--b\r\n\r\n\r\nban\r\n--b--"),
        (KIND, "--b\r\nContent-Disposition: form-data\r\n\r\nban\r\n--b--"),
        (KIND, part("q" * 1000, "ban") + "--b--"),
        (KIND, part("q", "ban") * 1001 + "--b--"),
    ],
)
def test_what_is_no_form_is_refused(kind: str, body: str) -> None:
    with pytest.raises(RefusedError, match="not the form that it is said to be"):
        form_fields(kind, body.encode())


def test_what_is_no_text_is_refused() -> None:
    for kind, body in (
        (KIND, part("q", "é") + "--b--"),
        ("application/x-www-form-urlencoded", "é"),
    ):
        with pytest.raises(RefusedError, match="not UTF-8"):
            form_fields(kind, body.encode("latin-1"))


@pytest.mark.parametrize(
    "hostile",
    [
        part("=?utf-8?q?a?= " * (SIZE // 14), ""),
        part("q", "", "; a=b" * (SIZE // 5)),
        part("q", "", "(" * SIZE),
        "--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" * (SIZE // 55),
        "--b\r\n" * (SIZE // 5),
        "\r\n" * (SIZE // 2),
        "--b" * (SIZE // 3),
    ],
)
def test_hostile_forms_take_no_time(hostile: str) -> None:
    begin = time.perf_counter()
    for kind, body in ((KIND, f"{hostile}--b--"), (f"{KIND[:-1]}{hostile[:60_000]}", hostile)):
        with suppress(RefusedError):
            form_fields(kind, body.encode())
    assert time.perf_counter() - begin < 2, "it took seconds, or minutes, once"


def test_hostile_cookies_take_no_time() -> None:
    begin = time.perf_counter()
    for cookie in ('a="' + '\\"' * 30_000, ";" * 60_000, "session=" * 4_000):
        _cookie_value(cookie, "session")
    assert time.perf_counter() - begin < 1, "it took four seconds once"
    assert _cookie_value("a=b; session=x-_1 ; c=d", "session") == "x-_1"
    assert _cookie_value("a=b; session=", "session") is None
