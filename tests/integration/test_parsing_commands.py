"""A parser from trees to trees, by the commands."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headwise.data.trees import read_tree, read_trees
from headwise.errors import ConfigError, DataError
from headwise.runs.metrics import read_metrics
from headwise.tasks.parsing.files import TreeFiles
from headwise.tasks.parsing.parser import Parser
from headwise.tasks.parsing.scores import comparable, evaluate_runs
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.small_runs import TREE_SETTINGS, digests, small_tree_config, write_trees

SENTENCES = ["The old dog sees the cat near the house.", "", "dog", "(odd) words 🙂 -LRB-"]


def test_trees_are_learned(trained_parser: Path, tmp_path: Path) -> None:
    valid = [line for line in read_metrics(trained_parser / "metrics.jsonl") if "f1" in line]
    assert valid[-1]["f1"] > 70
    assert valid[-1]["tagging_accuracy"] > 85
    (run,) = evaluate_runs([trained_parser], write_trees(tmp_path, count=60, seed=5)).runs
    assert run.scores.overall.f1 > 70
    assert (run.scores.overall.errors, run.repaired) == (0, 0)
    state = json.loads(next((trained_parser / "checkpoints").glob("*/state.json")).read_text())
    assert state["best_f1"] == max(line["f1"] for line in valid[: state["best_step"] // 60])


def test_a_run_is_resumed_to_the_bit(tmp_path: Path) -> None:
    trees = write_trees(tmp_path)
    train(small_tree_config(), tmp_path / "whole", text=trees)
    train(small_tree_config("train.max_steps=4"), tmp_path / "parts", text=trees)
    config = tmp_path / "parts" / "config.toml"
    config.write_text(config.read_text().replace("max_steps = 4", "max_steps = 12"))
    train(small_tree_config(), tmp_path / "parts", text=trees)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_a_parser_without_tags_is_scored_by_the_gold_tags(tmp_path: Path) -> None:
    config = small_tree_config("data.leaves=placeholder", "train.max_steps=4")
    train(config, tmp_path / "run", text=write_trees(tmp_path))
    files = write_trees(tmp_path, count=20, seed=5)
    (run,) = evaluate_runs([tmp_path / "run"], files).runs
    assert (run.scores.overall.scored, run.has_tags) == (20, False)
    assert run.scores.overall.tagging_accuracy == 100
    (found,) = Parser.load(tmp_path / "run").parse("the dog .")
    assert found.tree is not None
    assert {leaf.label for leaf in found.tree.leaves()} == {"XX"}


def test_mistagged_punctuation_does_not_leave_a_sentence_out() -> None:
    gold = read_tree("(S (NP (DT the) (NN dog)) (VP (VBZ sees)) (. .))")
    own = read_tree("(S (NP (DT the) (. dog)) (VP (VB sees)) (NN .))")
    assert comparable(own, gold) == read_tree("(S (NP (DT the) (XX dog)) (VP (VB sees)) (. .))")


def test_a_filter_writes_a_tree_for_each_line(trained_parser: Path, preloaded: Path) -> None:
    given = "".join(f"{sentence}\n" for sentence in SENTENCES).encode()
    command = [str(preloaded / "headwise"), "parse", str(trained_parser)]
    result = subprocess.run(
        command, input=given + b"\xff\n", capture_output=True, timeout=60, check=False
    )
    assert result.returncode == 2
    lines = result.stdout.decode().split("\n")
    assert lines == [
        *(found.brackets for found in Parser.load(trained_parser).parse(SENTENCES)),
        "",
    ]
    assert lines[1] == ""
    assert read_tree(lines[3]).words() == ["(", "odd", ")", "words", "🙂", "("]
    *_, last = result.stderr.decode().splitlines()
    assert last.startswith("headwise: stdin:5: not UTF-8 text at byte 1")


def test_sentences_as_arguments(trained_parser: Path, headwise: Headwise, tmp_path: Path) -> None:
    parser = Parser.load(trained_parser)
    code, output, errors = headwise("parse", str(trained_parser), *SENTENCES[:2], "--beam", "2")
    assert (code, errors) == (0, f"using {parser.name}\n")
    assert output.split("\n")[0] == parser.parse(SENTENCES[0], beam=2)[0].brackets
    code, output, _ = headwise("parse", str(trained_parser), "the dog.", "--tokenized", "--json")
    row = json.loads(output)
    assert (code, row["words"], row["repaired"], row["parts"]) == (0, ["the", "dog."], False, 1)
    assert read_tree(row["tree"]).words() == row["words"]
    assert row["constituents"][0] | {"label": "S"} == {
        "label": "S",
        "start": 0,
        "end": 2,
        "depth": 0,
    }
    code, output, _ = headwise("parse", str(trained_parser), "the dog", "", "--draw")
    assert code == 0
    assert output == parser.parse("the dog")[0].pretty() + "\n\n\n\n"
    out = tmp_path / "out.txt"
    code, output, _ = headwise("parse", str(trained_parser), "the dog", "--output", str(out))
    assert (code, output, out.read_text()[0]) == (0, "", "(")


def test_pictures(trained_parser: Path, headwise: Headwise, tmp_path: Path) -> None:
    one, many = tmp_path / "one.svg", tmp_path / "new" / "many"
    code, output, _ = headwise("parse", str(trained_parser), "the dog", "--svg", str(one))
    assert (code, output.startswith("("), one.read_text()[:5]) == (0, True, "<svg ")
    sentences = ("the dog", "", "dog")
    code, _, _ = headwise("parse", str(trained_parser), *sentences, "--svg", str(many))
    assert (code, sorted(path.name for path in many.iterdir())) == (0, ["1.svg", "3.svg"])


def test_repaired_and_divided_sentences_are_counted(
    trained_parser: Path, headwise: Headwise, tmp_path: Path
) -> None:
    long = "the dog " * 150
    code, output, errors = headwise("parse", str(trained_parser), long, "--unconstrained")
    assert (code, read_tree(output).words()) == (0, ["the", "dog"] * 150)
    _, *counts = errors.splitlines()
    assert counts[0] == "headwise: 1 of 1 outputs were not trees over the words: repaired"
    assert "1 sentence was longer than the " in counts[1]


def test_trees_are_evaluated(trained_parser: Path, tmp_path: Path, headwise: Headwise) -> None:
    (path,) = write_trees(tmp_path, count=30, seed=5).paths
    trees = ("--trees", str(path))
    code, output, _ = headwise("evaluate", str(trained_parser), *trees, "--json")
    (run,) = json.loads(output)["runs"]
    assert (code, run["overall"]["scored"], run["repaired"], run["tags"]) == (0, 30, 0, "own")
    assert {row["label"] for row in run["by_label"]} >= {"S", "NP", "VP"}
    assert len(run["by_length"]) == 5
    code, output, _ = headwise("evaluate", str(trained_parser), *trees)
    assert code == 0
    for part in ("F1", "up to 40 words", "complete match", "95 % interval", "0–10", "label"):
        assert part in output
    code, output, _ = headwise("evaluate", *[str(trained_parser)] * 2, *trees)
    assert (code, len(output.splitlines())) == (0, 3)
    parameters = tmp_path / "only.prm"
    parameters.write_text("LABELED 0\n")
    same = ("--parameters", str(parameters), "--beam", "1", "--alpha", "0.5", "--json")
    code, output, _ = headwise("evaluate", str(trained_parser), *trees, *same)
    (unlabelled,) = json.loads(output)["runs"]
    assert (code, unlabelled["overall"]["words"] > run["overall"]["words"]) == (0, True)
    code, _, errors = headwise("evaluate", str(trained_parser), *trees, "--beam", "10000000")
    assert (code, "decode.beam = 10000000 must be at most" in errors) == (2, True), errors


def test_a_score_is_that_of_the_files(
    trained_parser: Path, tmp_path: Path, headwise: Headwise
) -> None:
    (gold,) = write_trees(tmp_path, count=30, seed=5).paths
    words = tmp_path / "words.txt"
    lines = (" ".join(found.tree.words()) for found in read_trees(gold))
    words.write_text("".join(f"{line}\n" for line in lines))
    out = tmp_path / "parsed.txt"
    files = ("--input", str(words), "--output", str(out), "--tokenized")
    assert headwise("parse", str(trained_parser), *files)[0] == 0
    _, by_files, _ = headwise("score-trees", str(gold), str(out), "--json")
    _, by_run, _ = headwise("evaluate", str(trained_parser), "--trees", str(gold), "--json")
    scores, (run,) = json.loads(by_files), json.loads(by_run)["runs"]
    if not scores["overall"]["errors"]:  # Else a comma was tagged as a word.
        assert scores["overall"] == run["overall"]


def test_other_verbs_know_the_task(
    tmp_path: Path, trained_parser: Path, headwise: Headwise
) -> None:
    (path,) = write_trees(tmp_path).paths
    settings = [part for change in TREE_SETTINGS for part in ("--set", change)]
    files = ("--trees", f"{path}:2", "--valid-trees", str(path))
    code, output, errors = headwise("doctor", "parsing-small", *files, *settings)
    assert (code, errors) == (0, "")
    assert "240 trees to train on, 120 to validate on" in output
    data = tmp_path / "data"
    assert headwise("prepare", "parsing-small", *files, "--out", str(data), *settings)[0] == 0
    run = tmp_path / "plain"
    # The data of a model with aligned input serves one without.
    plain = ("--set", "model.aligned_input=false", "--set", "data.f1_trees=0")
    options = ("--data", str(data), "--run", str(run), *settings, *plain)
    code, _, errors = headwise("train", "parsing-small", *options)
    assert code == 0, errors
    assert not any("f1" in line for line in read_metrics(run / "metrics.jsonl"))
    html = tmp_path / "attention.html"
    code, _, errors = headwise("attention", str(run), "the dog .", "--out", str(html))
    assert (code, html.stat().st_size > 1000) == (0, True), errors
    code, _, errors = headwise("report", str(trained_parser), "--trees", str(path))
    assert code == 0, errors
    page = (trained_parser / "report.html").read_text()
    assert "parses sentences into constituency trees" in page
    code, _, errors = headwise(
        *("train", "parsing-small", "--trees", str(path), "--init-from", str(trained_parser)),
        *("--run", str(tmp_path / "tuned"), *settings, "--set", "train.max_steps=2"),
        *("--set", "model.d_model=32", "--set", "model.d_ff=64"),
    )
    assert code == 0, errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translate", "{run}", "A dog."), "is a run of parsing: use `headwise parse"),
        (("parse", "{mt}", "x"), "is a run of translation: use `headwise translate"),
        (("parse", "{run}", "x", "--input", "y"), "or a file with --input, not both"),
        (("parse", "{run}", "x", "--json", "--draw"), "either --json or --draw"),
        (("parse", "{run}", "x", "y", "--svg", "z.svg"), "name a directory"),
        (("parse", "{run}", "x", "--svg", "/dev/null/x"), "cannot write the picture"),
        (("parse", "{run}", "x", "--set", "train.seed=2"), "only its [decode] settings"),
        (("parse", "nowhere", "x"), "nowhere does not exist"),
        (("evaluate", "{run}"), "give the trees to evaluate on with --trees"),
        (("evaluate", "{run}", "--text", "x"), "--text is of another task"),
        (("evaluate", "{mt}", "--trees", "x"), "--trees is of another task"),
        (("evaluate", "{run}", "--trees", "nowhere"), "nowhere: cannot be read"),
        (("evaluate", "{run}", "--trees", "{bad}"), "bad.mrg:1:7: expected"),
        (("evaluate", "{run}", "--trees", "/dev/null"), "there are no trees to evaluate on"),
        (("train", "parsing-small", "--src", "x", "--run", "y"), "--src is of another task"),
        (("train", "parsing-small", "--run", "y"), "trees (--trees)"),
        (("train", "parsing-small", "--trees", "x:0", "--run", "y"), "its weight 0 must be"),
        (("train", "parsing-small", "--trees", "{bad}", "--run", "y"), "bad.mrg:1:7: expected"),
    ],
)
def test_errors_are_one_line(
    arguments: tuple[str, ...],
    message: str,
    trained_parser: Path,
    trained_run: Path,
    tmp_path: Path,
    headwise: Headwise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.mrg").write_text("(S (NN))\n")
    places = {"run": trained_parser, "mt": trained_run, "bad": tmp_path / "bad.mrg"}
    code, output, errors = headwise(*(part.format(**places) for part in arguments))
    assert (code, output) == (2, "")
    *_, last = errors.splitlines()
    assert last.startswith("headwise: ")
    assert message in last


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("tokenizer/manifest.json", b"[]"),
        ("tokenizer/manifest.json", b'{"sha256": {}, "streams": {"target": "sentencepiece"}}'),
        ("tokenizer/target.json", b"{" * 100_000),
        ("tokenizer/target.json", None),
        ("tokenizer/source.model", b"\0" * 100),
        ("config.toml", b'task = "parsing"\n[model]\ntying = "two-way"\nnum_layers = 900\n'),
        ("config.toml", b'task = "parsing"\n'),
    ],
)
def test_a_hostile_run_is_refused_in_one_line(
    place: str, content: bytes | None, trained_parser: Path, tmp_path: Path, headwise: Headwise
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained_parser, run)
    (run / place).unlink()
    if content is None:
        os.mkfifo(run / place)
    else:
        (run / place).write_bytes(content)
    code, output, errors = headwise("parse", str(run), "x")
    assert (code, output) == (2, "")
    assert errors.startswith("headwise: ")
    assert errors.count("\n") == 1


def test_damaged_validation_trees_are_refused(tmp_path: Path) -> None:
    trees, config = write_trees(tmp_path), small_tree_config("train.max_steps=1")
    train(config, tmp_path / "run", text=trees)
    valid = tmp_path / "run" / "data" / "valid"
    path = valid / "00000.tree.ids"
    path.write_bytes(b"\xff\0" * (path.stat().st_size // 2))
    with pytest.raises(DataError, match="has been changed: prepare it anew"):
        train(config, tmp_path / "run", text=trees)


def test_a_weighted_file_is_another_run(tmp_path: Path) -> None:
    trees, config = write_trees(tmp_path), small_tree_config("train.max_steps=1")
    train(config, tmp_path / "run", text=trees)
    other = TreeFiles(paths=trees.paths, weights=(2.0,))
    with pytest.raises(ConfigError, match="is another run: the text files are trees-1.mrg"):
        train(config, tmp_path / "run", text=other)
