"""Attention as pages and pictures, and the command that makes them."""

import json
import re
import sys
from pathlib import Path

import pytest

from headwise import Translator
from headwise.errors import RequestError
from headwise.inspect.attention import attention_record
from headwise.inspect.attention_file import write_attention
from headwise.inspect.attention_page import render_attention
from headwise.inspect.document import render_document
from headwise.inspect.explorer_files import explorer_script, explorer_style
from tests.conftest import Headwise

SOURCE = "ban dora kuti"


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    return Translator.load(trained_run)


def test_the_page_holds_the_record_and_asks_for_nothing(translator: Translator) -> None:
    record = attention_record(translator, SOURCE)
    page = render_attention(record, translator.name, {"layer": 0})
    start = '<script type="application/json" id="page-data">'
    data = json.loads(page.partition(start)[2].partition("</script>")[0])
    assert data == {"records": [json.loads(json.dumps(record.to_dict()))], "choice": {"layer": 0}}
    assert not re.search(r'\b(src|href|action)\s*=\s*"(?!#)', page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_the_explorer_makes_no_markup_and_no_style_attribute() -> None:
    script = explorer_script()
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in script
    assert not re.search(r"""setAttribute\(\s*["'](style|on\w+)["']""", script)
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\b\s*\(", script)
    assert not re.search(r"@import|url\(", explorer_style())


def test_no_text_can_end_the_data_or_the_title() -> None:
    hostile = "</script><script>alert(1)</script><!--\u2028"
    page = render_document(title=hostile, body="", style="", script="f()", data={"text": [hostile]})
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<!--" not in page
    data = page.partition('id="page-data">')[2].partition("</script>")[0]
    assert json.loads(data) == {"text": [hostile]}


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_pictures_are_drawn_of_every_kind_and_are_the_same_again(
    translator: Translator, tmp_path: Path, kind: str
) -> None:
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")):
        out = tmp_path / name
        write_attention(translator, SOURCE, out, kind=kind)  # type: ignore[arg-type]
        first = out.read_bytes()
        assert first.startswith(start)
        write_attention(translator, SOURCE, out, kind=kind)  # type: ignore[arg-type]
        assert out.read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.PDF", "a.png", "a.svg"]


def test_a_picture_shows_the_words_and_the_heads_asked_for(
    translator: Translator, tmp_path: Path
) -> None:
    out = tmp_path / "a.svg"
    write_attention(translator, "ban $x$ é", out, target="ban </svg>", heads=[2])
    text = out.read_text("utf-8")
    # Matplotlib writes what each drawn text says as a comment beside its outlines.
    comments = re.findall(r"<!-- (.*?) -->", text)
    assert "head 2" in comments
    assert "head 1" not in comments
    assert "layer 1 of 1: the translation looks down at the source" in comments
    assert comments.count("ban") == 2
    assert "é 1/2" in comments
    assert text.count("</svg>") == 1


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("a.gif", {}, "no known kind of file: let the name end in one of .html, .pdf, .png, .svg"),
        ("a.png", {"layer": 2}, "there is no layer 2: the model has 1 to 1"),
        ("a.png", {"layer": 0}, "there is no layer 0"),
        ("a.png", {"heads": [1, 3]}, "there is no head 3: the model has 1 to 2"),
        ("a.html", {"heads": [1, 2]}, "a page shows one head at first"),
        ("no/a.html", {}, "cannot write the attention: No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_reason(
    translator: Translator, tmp_path: Path, name: str, options: dict[str, int], complaint: str
) -> None:
    with pytest.raises(RequestError, match=complaint):
        write_attention(translator, SOURCE, tmp_path / name, **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RequestError, match=r"needs matplotlib: pip install 'headwise\[plot\]'"):
        write_attention(translator, SOURCE, tmp_path / "a.png")
    write_attention(translator, SOURCE, tmp_path / "a.html")


def test_the_command_writes_a_page_or_says_why_not(
    trained_run: Path, tmp_path: Path, headwise: Headwise
) -> None:
    out = tmp_path / "dog.html"
    code, output, errors = headwise(
        "attention", str(trained_run), SOURCE, "--target", "kuti", "--head", "2", "--out", str(out)
    )
    assert (code, output) == (0, "")
    assert errors == f"using {trained_run}/averaged\nwrote {out}\n"
    data = json.loads(out.read_text("utf-8").partition('id="page-data">')[2].partition("</")[0])
    assert data["records"][0]["target"] == "kuti"
    assert data["choice"] == {"kind": "cross", "layer": 0, "head": 1}
    for arguments, complaint in (
        (
            ["attention", str(trained_run), SOURCE, "--out", str(tmp_path / "a.doc")],
            "no known kind",
        ),
        (["attention", str(trained_run), " ", "--out", str(out)], "the source is empty"),
        (["attention", str(tmp_path), SOURCE, "--out", str(out)], "is not a run directory"),
        (["attention", str(trained_run), SOURCE], "Missing option '--out'"),
    ):
        code, output, errors = headwise(*arguments)
        assert (code, output) == (2, "")
        assert complaint in errors
