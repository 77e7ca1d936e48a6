"""A language model from a text to what it writes, by the commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.errors import DataError
from headwise.runs.metrics import read_metrics
from headwise.tasks.language_model.generator import Generator
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.small_runs import (
    TEXT_SETTINGS,
    WORDS,
    digests,
    small_text_config,
    start,
    write_book,
)


def following(word: str, count: int) -> list[str]:
    first = WORDS.index(word) + 1
    return [WORDS[(first + number) % len(WORDS)] for number in range(count)]


def test_a_text_is_learned(trained_lm: Path) -> None:
    last = [line for line in read_metrics(trained_lm / "metrics.jsonl") if line["kind"] == "valid"]
    assert last[-1]["bits_per_byte"] < 0.6
    assert last[-1]["bits_per_byte"] * last[-1]["bytes"] == pytest.approx(
        last[-1]["nll"] * last[-1]["tokens"] / 0.6931471805599453
    )
    generator = Generator.load(trained_lm)
    for number in range(0, len(WORDS) - 3, 5):
        prompt = " ".join(WORDS[number : number + 3])
        written = generator.generate(prompt, temperature=0, max_tokens=20).text
        assert written.split()[:4] == following(WORDS[number + 2], 4)


def test_a_run_is_resumed_to_the_bit(tmp_path: Path) -> None:
    book = write_book(tmp_path)
    train(small_text_config(), tmp_path / "whole", text=book)
    train(small_text_config("train.max_steps=4"), tmp_path / "parts", text=book)
    config = tmp_path / "parts" / "config.toml"
    config.write_text(config.read_text().replace("max_steps = 4", "max_steps = 12"))
    train(small_text_config(), tmp_path / "parts", text=book)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_one_prompt_is_continued_as_it_comes(trained_lm: Path, headwise: Headwise) -> None:
    options = ("--prompt", "ban bara", "--temperature", "0", "--max-tokens", "20")
    code, output, errors = headwise("generate", str(trained_lm), *options)
    assert (code, errors) == (0, f"using {trained_lm / 'averaged'}\n")
    expected = Generator.load(trained_lm).generate("ban bara", temperature=0, max_tokens=20)
    assert output == expected.text + "\n"
    assert output.split()[:3] == following("bara", 3)


def test_several_prompts_and_samples_are_a_line_each(trained_lm: Path, headwise: Headwise) -> None:
    options = ("--prompt", "ban", "--prompt", "kon", "--count", "3", "--seed", "2")
    code, output, _ = headwise("generate", str(trained_lm), *options)
    assert code == 0
    assert len(output.splitlines()) == 6
    code, as_json, _ = headwise("generate", str(trained_lm), *options, "--json")
    rows = [json.loads(line) for line in as_json.splitlines()]
    assert [row["prompt"] for row in rows] == ["ban", "kon"]
    texts = [sample["text"] for row in rows for sample in row["samples"]]
    assert [text.replace("\n", "\\n") for text in texts] == output.splitlines()
    code, output, _ = headwise("generate", str(trained_lm), *options, "--beam", "3")
    assert (code, len(output.splitlines())) == (0, 6)


def test_a_filter_writes_a_line_for_each(trained_lm: Path, preloaded: Path) -> None:
    options = ["--count", "2", "--max-tokens", "20"]
    result = subprocess.run(
        [str(preloaded / "headwise"), "generate", str(trained_lm), *options],
        input=b"ban\n\nkon dun\n\xff\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    lines = result.stdout.decode().splitlines()
    assert [line.count("\t") for line in lines] == [1, 1, 1]
    *_, last = result.stderr.decode().splitlines()
    assert last.startswith("headwise: stdin:4: not UTF-8 text at byte 1")
    generator = Generator.load(trained_lm)
    settings = generator.settings(max_tokens=20, count=2)
    (third,) = generator.generate_all(["kon dun"], settings, first=2)
    assert lines[2] == "\t".join(s.text.replace("\n", "\\n") for s in third.samples)


def test_ctrl_c_is_quiet(trained_lm: Path) -> None:
    options = ["--prompt", "ban", "--ignore-end", "--max-tokens", "1000000"]
    process = start(["-m", "headwise", "generate", str(trained_lm), *options])
    assert process.stdout is not None
    assert process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, f"using {trained_lm / 'averaged'}")


def test_a_text_is_evaluated(trained_lm: Path, tmp_path: Path, headwise: Headwise) -> None:
    book = write_book(tmp_path, documents=30, seed=9)
    (path,) = book.paths
    code, output, _ = headwise("evaluate", str(trained_lm), "--text", str(path), "--json")
    assert code == 0
    (run,) = json.loads(output)["runs"]
    assert (run["bytes"], run["words"]) == (path.stat().st_size, 30 * 15)
    assert (run["window"], run["stride"]) == (24, 12)
    assert run["bits_per_byte"] < 0.6
    rows = "".join(json.dumps({"t": text}) + "\n" for text in path.read_text().split("\n\n"))
    (tmp_path / "t.jsonl").write_text(rows)
    same = ("--text", str(tmp_path / "t.jsonl"), "--text-column", "t")
    code, output, _ = headwise("evaluate", str(trained_lm), *same)
    assert code == 0
    assert "bits a byte, perplexity" in output
    assert "window of 24 tokens, moved by 12" in output
    code, output, _ = headwise("evaluate", *[str(trained_lm)] * 2, "--text", str(path))
    assert (code, len(output.splitlines())) == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translate", "{lm}", "A dog."), "is a run of language-model: use `headwise generate"),
        (("generate", "{mt}", "--prompt", "x"), "is a run of translation: use `headwise translate"),
        (("evaluate", "{lm}", "--src", "x", "--ref", "y"), "--src is of another task"),
        (("evaluate", "{mt}", "--text", "x"), "--text is of another task"),
        (("evaluate", "{lm}", "{mt}", "--text", "x"), "evaluate them apart"),
        (("evaluate", "{lm}"), "give the text to evaluate on with --text"),
        (("evaluate", "{lm}", "--text", "nowhere"), "nowhere: cannot be read"),
        (
            ("generate", "{lm}", "--prompt", "x", "--beam", "2", "--count", "3"),
            "from 1 to 2, the beam",
        ),
        (("train", "lm-tiny", "--src", "x", "--run", "y"), "--src is of another task"),
        (("train", "lm-tiny", "--run", "y"), "text (--text)"),
    ],
)
def test_errors_are_one_line(
    arguments: tuple[str, ...],
    message: str,
    trained_lm: Path,
    trained_run: Path,
    headwise: Headwise,
) -> None:
    places = {"lm": trained_lm, "mt": trained_run}
    code, output, errors = headwise(*(part.format(**places) for part in arguments))
    assert (code, output) == (2, "")
    assert errors.startswith("headwise: ")
    assert errors.count("\n") == 1
    assert message in errors


def test_other_verbs_know_the_task(tmp_path: Path, trained_lm: Path, headwise: Headwise) -> None:
    book = write_book(tmp_path)
    settings = [part for change in TEXT_SETTINGS for part in ("--set", change)]
    files = ("--text", str(book.paths[0]))
    code, output, errors = headwise("doctor", "lm-tiny", *files, *settings)
    assert (code, errors) == (0, "")
    assert "blocks of 24 tokens to train on" in output
    data = tmp_path / "data"
    code, _, errors = headwise("prepare", "lm-tiny", *files, "--out", str(data), *settings)
    assert (code, errors) == (0, "")
    run = tmp_path / "tuned"
    options = ("--init-from", str(trained_lm), *files, "--set", "model.d_model=32")
    code, output, errors = headwise(
        *("train", "lm-tiny", *options, "--run", str(run), *settings),
        *("--set", "model.d_model=32", "--set", "model.d_ff=64"),
    )
    assert code == 0, errors
    code, output, _ = headwise("average", str(run), "--last", "2")
    assert (code, "averaged 2 checkpoints" in output) == (0, True)
    code, _, errors = headwise("plot", str(run), "--out", str(tmp_path / "curves.html"))
    assert (code, (tmp_path / "curves.html").stat().st_size > 1000) == (0, True), errors
    code, output, _ = headwise("config", "gpt", "--paper")
    assert code == 0
    assert 'task = "language-model", where §1 has translation' in output


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("tokenizer/manifest.json", b"[]"),
        ("tokenizer/manifest.json", b'{"sha256": {}, "streams": {"text": ["x"]}}'),
        ("tokenizer/manifest.json", b'{"sha256": {"text.model": 3}, "streams": 3}'),
        ("tokenizer/text.model", b"\0" * 100),
        ("tokenizer/text.model", None),
        ("averaged/weights.safetensors", b"\xff" * 100),
        ("config.toml", b'task = "language-model"\n[data]\ncontext = 1000000000\n'),
        ("config.toml", b'task = "language-model"\n[model]\nnum_layers = 900\n'),
        ("config.toml", b'task = ["language-model"]\n'),
        ("config.toml", b'task = "translation"\n'),
    ],
)
def test_a_hostile_run_is_refused_in_one_line(
    place: str, content: bytes | None, trained_lm: Path, tmp_path: Path, headwise: Headwise
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained_lm, run)
    (run / place).unlink()
    if content is None:
        os.mkfifo(run / place)
    else:
        (run / place).write_bytes(content)
    for verb in (("generate", str(run), "--prompt", "x"), ("evaluate", str(run), "--text", "x")):
        code, output, errors = headwise(*verb)
        assert (code, output) == (2, "")
        assert errors.startswith("headwise: ")
        assert errors.count("\n") == 1


def test_validation_data_without_its_counts_is_refused(tmp_path: Path) -> None:
    book, config = write_book(tmp_path), small_text_config("train.max_steps=1")
    train(config, tmp_path / "run", text=book)
    manifest = tmp_path / "run" / "data" / "valid" / "manifest.json"
    before = json.loads(manifest.read_text())
    for notes, message in (
        ({}, "not prepared with data.context = 24"),
        ({"context": 24}, "its notes do not count bytes and words"),
        ({"context": 24, "bytes": 0, "words": 1}, "its notes do not count bytes and words"),
        ({"context": 24, "bytes": "x", "words": [1]}, "its notes do not count bytes and words"),
    ):
        manifest.write_text(json.dumps(before | {"notes": notes}))
        with pytest.raises(DataError, match=message):
            train(config, tmp_path / "run", text=book)


def test_a_closed_stdin_is_an_error(
    trained_lm: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    code, _, errors = headwise("generate", str(trained_lm))
    assert code == 2
    assert "stdin is closed: give prompts with --prompt" in errors
