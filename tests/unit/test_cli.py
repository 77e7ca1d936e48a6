import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from headwise.config import Config, ModelConfig
from tests.conftest import Headwise


def headwise(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "headwise", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def test_help_shows_the_verbs_and_examples() -> None:
    for arguments in ((), ("--help",), ("-h",)):
        result = headwise(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
        assert "explain" in result.stdout
        assert "Examples:" in result.stdout


VERBS = [
    "attention",
    "average",
    "config",
    "demo",
    "doctor",
    "evaluate",
    "explain",
    "export",
    "parse",
    "plot",
    "prepare",
    "report",
    "reproduce",
    "score",
    "score-trees",
    "serve",
    "train",
    "translate",
]


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_with_examples(verb: str) -> None:
    result = headwise(verb, "--help")
    assert result.returncode == 0
    assert "Examples:" in result.stdout


def test_the_help_of_config_lists_every_shipped_recipe() -> None:
    from headwise.recipes import recipe_names

    words = headwise("config", "--help").stdout.replace(",", " ").replace(":", " ").split()
    others = (
        "base",
        "big",
        "gpt",
        "lm-tiny",
        "multi30k-tiny",
        "text-tiny",
        "bert-tiny",
        "vit-tiny",
        "speech-tiny",
        "read-tiny",
        "listen-tiny",
    )
    listed, stem = set(), ""
    for word in words:
        if word.startswith(("table3-", "demo", "parsing-")) or word in others:
            listed.add(word)
            stem = "-".join(word.split("-")[:2])
        elif word.startswith("-") and stem:
            listed.add(stem + word)
    assert set(recipe_names()) <= listed


def test_version() -> None:
    import headwise as package

    result = headwise("--version")
    assert (result.returncode, result.stdout) == (0, f"headwise {package.__version__}\n")


def test_config_prints_a_recipe_that_is_its_own_fixed_point(tmp_path: Path) -> None:
    result = headwise("config", "--set", "model.d_k=16")
    assert result.returncode == 0
    assert result.stdout.startswith("# 56.0 million parameters\n")
    assert Config.from_dict(tomllib.loads(result.stdout)) == Config(model=ModelConfig(d_k=16))
    (tmp_path / "mine.toml").write_text(result.stdout, "utf-8")
    assert headwise("config", str(tmp_path / "mine.toml")).stdout == result.stdout


def test_config_paper_names_departures_or_says_there_is_none() -> None:
    none = headwise("config", "base", "--paper")
    assert none.returncode == 0
    assert none.stdout == "No departure from the paper: this is the base model.\n"
    one = headwise("config", "--set", "model.norm_order=pre", "--paper")
    assert one.returncode == 0
    assert 'model.norm_order = "pre", where §3.1 has "post"' in one.stdout
    row = headwise("config", "table3-b-dk16", "--paper")
    assert row.returncode == 0
    assert "this is Table 3 row (B), d_k = 16" in row.stdout


def test_a_wrong_input_is_one_line_and_exit_code_2(headwise: Headwise) -> None:
    for arguments in (
        ("config", "nosuch"),
        ("config", "--set", "model.d_model=511"),
        ("config", "--set", "model.num_heads=0"),
        ("config", "--set", "model.dropout=-1"),
        ("config", "--set", "model.nosuch=1"),
        ("config", "--set"),
        ("config", "--nosuch"),
        ("config", "a", "b"),
        ("config", "--set", "mo\ndel=b"),
        ("config", "no\nsuch"),
        ("nosuch",),
        ("explain", "nosuch.toml"),
        ("prepare", "--out", "x"),
        ("prepare", "--src", "nosuch", "--tgt", "nosuch", "--out", "x"),
        ("prepare", "--src", "a", "--out", "x"),
        ("prepare", "--src", "a", "--tgt", "b", "--tsv", "c", "--out", "x"),
        ("prepare", "--tsv", "a", "--columns", "1", "--out", "x"),
        ("prepare", "--tsv", "a", "--columns", "0,1", "--out", "x"),
    ):
        code, output, errors = headwise(*arguments)
        assert (code, output) == (2, ""), arguments
        assert errors.count("\n") == 1, errors
        assert errors.startswith("headwise: ")


def test_traceback_shows_where_an_error_came_from() -> None:
    result = headwise("config", "nosuch", "--traceback")
    assert result.returncode == 2
    assert result.stderr.startswith("Traceback (most recent call last)")
    assert result.stderr.splitlines()[-1].startswith("headwise: no recipe and no file 'nosuch'")


def test_an_unknown_verb_points_to_the_help() -> None:
    result = headwise("nosuch")
    assert result.returncode == 2
    assert result.stderr == "headwise: No such command 'nosuch'. See 'headwise --help'.\n"


def test_explain_prints_the_worked_example() -> None:
    result = headwise("explain")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "2.6", "2.78"] in lines
    assert ["2", "1.79", "1.97"] in lines
    assert lines.count(["1", "0.474", "0.526"]) == 1
    assert lines.count(["2", "0.474", "0.526"]) == 1
    assert ["1", "1.0422", "0.8156", "1.0156"] in lines
    assert ["2", "1.0422", "0.8156", "1.0156"] in lines
    assert "\x1b" not in result.stdout


def test_without_unicode_both_verbs_are_still_readable() -> None:
    result = headwise("explain", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert "scores = Q K^T" in result.stdout
    assert "0.8x1 + 1x1.2 + 1.2x0.5 = 2.6" in result.stdout
    result = headwise("config", "--set", "model.dropout=0", "--paper", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert "model.dropout = 0.0, where section 5.4 has 0.1" in result.stdout


def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(tmp_path: Path) -> None:
    matrices = tmp_path / "m.json"
    row = [round(0.1234 + 0.01 * n, 4) for n in range(12)]
    values = {"Q": [row] * 12, "K": [row] * 12, "V": [row] * 12, "tokens": ["word"] * 12}
    matrices.write_text(json.dumps(values))
    for columns in ("40", "60", "80"):
        result = headwise("explain", str(matrices), COLUMNS=columns)
        assert result.returncode == 0
        lines = result.stdout.splitlines()
        assert max(map(len, lines)) <= int(columns)
        assert all(line == line.rstrip() for line in lines)
        for value in row:
            assert f"{value:g}" in result.stdout


def test_a_full_disk_is_one_line() -> None:
    for verb in ("config", "explain", "--help"):
        with Path("/dev/full").open("w") as full:
            result = subprocess.run(
                [sys.executable, "-m", "headwise", verb],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )
        assert result.returncode == 2
        assert result.stderr == "headwise: cannot write the output: No space left on device\n"


def test_explain_writes_a_page(tmp_path: Path) -> None:
    matrices, page = tmp_path / "m.json", tmp_path / "page.html"
    matrices.write_text(
        json.dumps({"Q": [[1, 2]], "K": [[0, 1]], "V": [[3]], "tokens": ["<script>"]})
    )
    result = headwise("explain", str(matrices), "--html", str(page))
    assert result.returncode == 0
    assert (result.stdout, result.stderr) == ("", f"wrote {page}\n")
    text = page.read_text("utf-8")
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.json", "page.html"]
    refused = headwise("explain", "--html", str(tmp_path / "no" / "page.html"))
    assert refused.returncode == 2
    assert "cannot write the page: No such file or directory" in refused.stderr


def test_prepare_says_what_it_made_and_what_it_left_out(tmp_path: Path, headwise: Headwise) -> None:
    words = ["the cat sees a dog", "a small house", "green garden", "dog and cat run", "", "large"]
    (tmp_path / "t.tsv").write_text(
        "".join(f"{n}\t{w}\t{w} x\r\n" for n, w in enumerate(words * 30))
    )
    arguments = ["--tsv", str(tmp_path / "t.tsv"), "--columns", "2,3", "--out", str(tmp_path / "d")]
    sizes = ["--set", "data.vocab_size=280", "--set", "data.holdout_pairs=10"]
    code, output, errors = headwise("prepare", *arguments, *sizes, "--processes", "1")
    assert (code, errors) == (0, "")
    first, *rest = output.splitlines()
    assert first.endswith(f"vocabulary 280: {tmp_path / 'd'}")
    assert rest == [
        "  training text: left out 30 of 180 pairs: an empty side "
        f"({tmp_path}/t.tsv:5, {tmp_path}/t.tsv:11, {tmp_path}/t.tsv:17, …)",
        "  training text: took off 180 times: carriage return",
    ]
    code, _, errors = headwise("prepare", *arguments, *sizes)
    assert code == 2
    assert "exists already: choose another name, or remove it" in errors


def test_plot_draws_runs_and_names_what_is_wrong(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        line = {"kind": "train", "step": 50, "minutes": 0.5, "loss": 7.5, "rate": 1e-4}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    runs, page = [str(tmp_path / "one"), str(tmp_path / "two")], tmp_path / "curves.html"
    result = headwise("plot", *runs, "--x", "minutes", "--out", str(page))
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == f"wrote {page}\n"
    text = page.read_text("utf-8")
    assert "<span>one</span>" in text
    assert "2 runs, by minutes of training" in text
    for arguments, complaint in (
        ([*runs, "--out", "x.gif"], "x.gif: no known kind of file: let the name end in one of"),
        ([str(tmp_path), "--out", "x.html"], "has no metrics.jsonl"),
        ([*runs], "Missing option '--out'. See 'headwise plot --help'."),
        (["--out", "x.html"], "Missing argument 'RUN...'"),
        ([*runs, "--x", "epochs", "--out", "x.html"], "'epochs' is not one of 'steps', 'minutes'"),
    ):
        refused = headwise("plot", *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert complaint in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["", "explain", "config"])
def test_a_closed_pipe_is_not_an_error_message(verb: str) -> None:
    command = f"{sys.executable} -m headwise {verb} | true"
    result = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True
    )
    assert (result.stdout, result.stderr) == ("", "")


def test_ctrl_c_ends_prepare_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("the cat sees\ta dog and a house\n" * 400_000)
    command = ["prepare", "--tsv", str(tmp_path / "t.tsv"), "--out", str(tmp_path / "d")]
    process = subprocess.Popen(
        [sys.executable, "-m", "headwise", *command, "--set", "data.vocab_size=285"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".d.*.tmp/.train.*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors.strip()) == (130, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["t.tsv"]


def test_a_closed_stdout_is_not_a_trace() -> None:
    result = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m headwise explain >&-"], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


_CTRL_C_WHILE_IT_IMPORTS = """
import os, signal, sys
class Importing:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Importing())
import headwise.__main__
"""


def test_ctrl_c_while_it_starts_leaves_no_trace() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _CTRL_C_WHILE_IT_IMPORTS], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (-signal.SIGINT, "")


_SIGNAL_IN_A_FINALISER = """
import os, signal, sys
import click
from headwise import cli
class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass
@cli.app.command()
def die():
    Last()
    click.echo("done")
sys.argv[1:] = ["die"]
cli.main()
"""


def test_a_signal_that_is_lost_is_in_the_exit_code() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _SIGNAL_IN_A_FINALISER], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (143, "done\n")


_NO_MEMORY = """
import sys, torch
from headwise import cli
@cli.app.command()
def grow():
    torch.empty(1 << 60)
sys.argv[1:] = ["grow"]
cli.main()
"""


def test_too_little_memory_is_one_line() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _NO_MEMORY], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "not enough memory: use a smaller model, batch or beam" in result.stderr
