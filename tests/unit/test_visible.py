"""What reaches a terminal: text with every control character shown as its escape."""

import io
import json
import logging
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from headwise.cli import demo_report, output
from headwise.cli.demo import DemoWatch
from headwise.cli.prompt import converse
from headwise.cli.watch import LiveWatch, PlainWatch
from headwise.config import Config, DataConfig
from headwise.errors import ConfigError
from headwise.evaluation.table import text_table
from headwise.serving.logs import JsonLines
from headwise.training.events import Note
from headwise.visible import visible
from tests.conftest import Headwise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, ñ, 走, שלום, 🙂", "plain, ñ, 走, שלום, 🙂"),
        ("\x1b[2J", r"\x1b[2J"),  # Clears the screen.
        ("\x9b2J\x85", r"\x9b2J\x85"),  # The same, and a line end, in the C1 controls.
        ("a\rb\bc\x7f\0", r"a\rb\x08c\x7f\x00"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),  # Shown backwards.
        ("\u200b\ufeff\u2028\u2029", r"\u200b\ufeff\u2028\u2029"),
        ("caf\udce9", r"caf\udce9"),  # A file name in Latin-1.
        ("[red]x[/red]", "[red]x[/red]"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_its_escape(text: str, expected: str) -> None:
    assert visible(text) == expected


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_that_acts_on_a_terminal_is_left(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
    assert visible(text, keep="\n").replace("\n", "").isprintable()


def test_translations_keep_what_their_languages_need() -> None:
    persian, french = "می\u200cخواهم", "Bonjour\u202f!"
    assert output.shown_text(persian) == persian
    assert output.shown_text(french) == french
    assert output.shown_text("a\x1b[2Jb\tñ\u2028\u202e") == r"a\x1b[2Jb\tñ\u2028\u202e"
    assert output.shown_text(" ") == "(nothing)"


def test_errors_and_notes_stay_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.error_line("run\nheadwise: all is well\x1b[8m")
    output.note("using a\r\nb")
    assert capsys.readouterr().err == (
        "headwise: run\\nheadwise: all is well\\x1b[8m\nusing a\\r\\nb\n"
    )


def test_lines_for_people_keep_line_feeds_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.show("a\tb\nc\x1b[31m\u202e\r")
    assert capsys.readouterr().out == "a\tb\nc\\x1b[31m\\u202e\\r\n"


def test_json_says_the_same_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"run": "a\x1b\x9b\u202e\U000e0001\udce9\n\té走"}
    output.show_json(values)
    printed = capsys.readouterr().out
    assert json.loads(printed) == values
    assert printed.replace("\n", "").isprintable()
    assert "é走" in printed


def test_a_cell_stays_in_its_row() -> None:
    table = text_table(("run", "BLEU"), [("a\nb\x1b[1A", "1.00"), ("longer name", "10.00")])
    assert table == "run           BLEU\na\\nb\\x1b[1A   1.00\nlonger name  10.00"


@pytest.mark.parametrize("text", ["d\x1b[2Je", "\x7f\x9b\u202e", 'é\u2028\U000e0001\n"\\'])
def test_a_recipe_says_the_same_without_control_characters(text: str) -> None:
    config = Config(data=DataConfig(source_language=text))
    recipe = config.to_toml()
    assert recipe.replace("\n", "").isprintable()
    assert Config.from_dict(tomllib.loads(recipe)) == config


def test_a_setting_that_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.source_language = 'a\\udcff' is not UTF-8 text"):
        replace(DataConfig(), source_language="a\udcff")


HOSTILE = "a\x1b[2J\r\x9b\u202e[red]b[/red]"


def test_what_long_work_says_is_visible(capsys: pytest.CaptureFixture[str]) -> None:
    PlainWatch().say(f"{HOSTILE}\nnext", is_warning=True)
    assert capsys.readouterr().err == f"warning: {visible(HOSTILE)}\nnext\n"


def test_an_event_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    PlainWatch().event(Note(text="going on from step 3 of a\nb"))
    assert capsys.readouterr().err == "going on from step 3 of a\\nb\n"


def test_the_demo_prints_names_visibly(capsys: pytest.CaptureFixture[str]) -> None:
    DemoWatch(PlainWatch(), 100).say("runs/a\nb\x1b[2J is trained already")
    assert capsys.readouterr().err == "runs/a\\nb\\x1b[2J is trained already\n"


def test_the_demos_report_shows_text_visibly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    (row,) = demo_report.row("source", HOSTILE)
    assert click.unstyle(row) == f"source       {visible(HOSTILE)}"
    (command,) = demo_report.command("headwise attention", HOSTILE)
    assert command == f"  headwise attention {visible(HOSTILE)}"


def test_the_prompt_shows_translations_visibly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Echo:
        def translate(self, texts: list[str], nbest: int) -> list[object]:
            candidate = SimpleNamespace(text="b\x1b[2J")
            return [SimpleNamespace(text="a\x1b[2J", candidates=[candidate] * nbest)]

    typed = iter(["x", "?", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    converse(cast("Any", Echo()))
    shown = capsys.readouterr().out
    assert shown.splitlines() == ["  a\\x1b[2J", *(f"  {n}. b\\x1b[2J" for n in range(1, 5))]


def test_the_servers_log_is_ascii() -> None:
    record = logging.LogRecord("headwise", logging.INFO, "", 0, "listening", None, None)
    record.fields = {"url": HOSTILE + "\x7f"}
    line = JsonLines().format(record)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["url"] == HOSTILE + "\x7f"


def test_a_live_view_takes_no_markup_and_no_control_characters() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=False, width=200)
    watcher = LiveWatch(console, Live(console=console, auto_refresh=False))
    watcher.say(HOSTILE)
    watcher.progress(f"translating with {HOSTILE}", 3, 10)
    console.print(watcher._bar)
    said, bar = written.getvalue().splitlines()
    assert said == visible(HOSTILE)
    assert bar.startswith(f"translating with {visible(HOSTILE)}")


def test_a_file_is_quoted_visibly(tmp_path: Path, headwise: Headwise) -> None:
    path = tmp_path / "evil\x1b]0;title\x07\n.toml"
    path.write_text("task = '\x1b[2J'")
    code, out, errors = headwise("config", str(path))
    assert (code, out) == (2, "")
    assert "evil\\x1b]0;title\\x07\\n.toml: not valid TOML" in errors
    path.write_text('[model]\n"d_model\\u001b[2J" = 1\n')
    code, out, traced = headwise("config", str(path), "--traceback")
    assert (code, out) == (2, "")
    for printed in (errors, traced):
        assert printed.replace("\n", "").isprintable()
    assert errors.count("\n") == 1
    assert headwise("config", "--set", "data.source_language=\udcff")[0] == 2


def test_choices_of_the_command_line_stay_readable(headwise: Headwise) -> None:
    code, _, errors = headwise("export", "run")
    assert code == 2
    assert errors.count("\n") == 1
    assert "\\n" not in errors


_BUG = """
import sys
from headwise import cli
@cli.app.command()
def fail():
    raise ValueError("quoted: \\x1b[2J")
sys.argv[1:] = ["fail"]
cli.main()
"""


def test_the_traceback_of_a_bug_is_visible_too() -> None:
    result = subprocess.run([sys.executable, "-c", _BUG], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == r"ValueError: quoted: \x1b[2J"
