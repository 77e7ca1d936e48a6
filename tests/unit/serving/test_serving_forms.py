"""Forms, valid and hostile."""

import sys
import tracemalloc
from contextlib import suppress

import pytest

from headwise.serving.forms import form_fields, form_parts
from headwise.serving.keys import _cookie_value
from headwise.serving.limits import RefusedError

KIND = "multipart/form-data; boundary=b"
SIZE = 990_000


def part(name: str, content: str, more: str = "") -> str:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{content}\r\n'


def test_a_multipart_form_is_parsed() -> None:
    body = part("q", "eins\r\nzwei\r\n") + part("q", "") + part("target", "dé") + "--b--\r\n"
    expected = {"q": ["eins\r\nzwei\r\n", ""], "target": ["dé"]}
    for kind in (KIND, 'multipart/form-data; charset=utf-8; boundary="b"', KIND.replace(";", " ;")):
        assert form_fields(kind, body.encode()) == expected
    file = part("q", "ban", '; filename="name=x.txt"\r\nContent-Type: text/plain')
    assert form_fields(KIND, f"before\r\n{file}--b--after".encode()) == {"q": ["ban"]}
    bare = b"--b\r\ncontent-disposition:form-data;name=q\r\n\r\nban\r\n--b--"
    assert form_fields(KIND, bare) == {"q": ["ban"]}


def test_an_urlencoded_form_is_parsed() -> None:
    kind = "application/x-www-form-urlencoded; charset=utf-8"
    assert form_fields(kind, b"q=ban+dora&q=%C3%A9&source=") == {
        "q": ["ban dora", "é"],
        "source": [""],
    }
    with pytest.raises(RefusedError, match="at most 1,000 fields"):
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
def test_malformed_forms_are_refused(kind: str, body: str) -> None:
    with pytest.raises(RefusedError, match="not a form of its Content-Type"):
        form_fields(kind, body.encode())


def test_forms_that_are_not_utf8_are_refused() -> None:
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
def test_hostile_forms_are_refused_in_few_calls(hostile: str) -> None:
    for kind, body in ((KIND, f"{hostile}--b--"), (f"{KIND[:-1]}{hostile[:60_000]}", hostile)):
        with suppress(RefusedError), Calls() as calls:
            form_fields(kind, body.encode())
        assert calls.count < 5000, "a parser for e-mail makes millions"


def test_files_are_copied_once() -> None:
    content = bytes(2_000_000)
    body = part("f", "", '; filename="a"').encode()[:-2] + content + b"\r\n--b--"
    tracemalloc.start()
    try:
        (file,) = form_parts(KIND, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (file.name, file.is_file, file.content) == ("f", True, content)
    assert peak < 1.1 * len(content)


class Calls:
    """Count the functions called in a block, those written in C included."""

    def __enter__(self) -> "Calls":
        self.count = 0
        self._before = sys.getprofile()
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _count(self, _: object, event: str, __: object) -> None:
        self.count += event in ("call", "c_call")


def test_hostile_cookies_are_parsed() -> None:
    # On some Pythons, http.cookies takes time quadratic in their length: minutes here.
    for cookie in ('a="' + '\\"' * 300_000, ";" * 600_000, "a=" * 300_000):
        assert _cookie_value(cookie, "session") is None
    assert _cookie_value("a=b; session=x-_1 ; c=d", "session") == "x-_1"
    assert _cookie_value("a=b; session=", "session") is None
