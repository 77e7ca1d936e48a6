"""A masked language model from a text to what it fills in, and to models that start from it."""

import json
from pathlib import Path

import pytest
import torch

from headwise.config import AnyConfig
from headwise.data import TokenShards
from headwise.errors import CheckpointError, ConfigError, RequestError
from headwise.runs.checkpoint import read_weights
from headwise.runs.directory import RunDirectory
from headwise.runs.metrics import read_metrics
from headwise.tasks.masked_language_model.filler import MaskFiller
from headwise.tasks.masked_language_model.task import TASK
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.small_runs import (
    MASK_SETTINGS,
    WORDS,
    digests,
    small_class_config,
    small_masked_config,
    small_tree_config,
    write_book,
    write_labelled,
    write_trees,
)


def test_masks_are_filled(trained_masked: Path) -> None:
    filler = MaskFiller.load(trained_masked)
    texts, expected = [], []
    for number in range(4, len(WORDS) - 4):
        *begin, last = filler.tokenizer.text.encode(WORDS[number])
        given = filler.tokenizer.text.decode(begin)
        before, after = WORDS[number - 3 : number], WORDS[number + 1 : number + 4]
        texts.append(" ".join([*before, f"{given}[MASK]", *after]))
        expected.append(filler.tokenizer.subwords.tokens([last])[0].replace("\u2581", " "))
    found = filler.fill(texts, top=3)
    right = [each.guesses[0][0].token == token for each, token in zip(found, expected, strict=True)]
    assert sum(right) >= 15
    for each in found:
        (guesses,) = each.guesses
        probabilities = [guess.probability for guess in guesses]
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) <= 1
    first = right.index(True)
    assert found[first].text.split() == WORDS[first + 1 : first + 8]


def test_the_loss_is_that_of_masked_tokens(trained_masked: Path) -> None:
    lines = read_metrics(trained_masked / "metrics.jsonl")
    assert [line for line in lines if line["kind"] == "train"][-1]["perplexity"] < 4
    assert [line for line in lines if line["kind"] == "valid"][-1]["perplexity"] < 4


def test_a_run_is_resumed_to_the_bit(tmp_path: Path) -> None:
    book = write_book(tmp_path)
    train(small_masked_config(), tmp_path / "whole", text=book)
    train(small_masked_config("train.max_steps=4"), tmp_path / "parts", text=book)
    config = tmp_path / "parts" / "config.toml"
    config.write_text(config.read_text().replace("max_steps = 4", "max_steps = 12"))
    train(small_masked_config(), tmp_path / "parts", text=book)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


@pytest.mark.parametrize("whole_words", ["true", "false"])
def test_blocks_are_stored_with_what_can_be_masked(tmp_path: Path, whole_words: str) -> None:
    config = small_masked_config(f"data.whole_words={whole_words}", "train.max_steps=1")
    train(config, tmp_path / "run", text=write_book(tmp_path))
    run = RunDirectory(tmp_path / "run")
    shards = TokenShards(run.path / "data" / "train")
    vocab = TASK.vocab(config, run.folder)
    begins = [shards.sequence("begins", number) for number in range(len(shards))]
    assert all((part == 1).all() for part in begins) == (whole_words == "false")
    assert max(shards.lengths("text")) == 24
    rows = {name: shards.sequences(name, torch.arange(3).numpy()) for name in ("begins", "text")}
    inputs, targets = TASK.collate(rows, vocab, (1, 0))
    assert (inputs[:, 0] == vocab.bos).all()
    assert inputs.shape == targets.shape
    assert int((targets != vocab.pad).sum()) == int(shards.lengths("predicted")[:3].sum())
    assert (inputs == vocab.mask).any()


def test_commands(trained_masked: Path, tmp_path: Path, headwise: Headwise) -> None:
    text = f"{WORDS[3]} [MASK] {WORDS[5]}"
    code, output, errors = headwise("fill", str(trained_masked), "--top", "2", text, "")
    assert (code, errors) == (0, f"using {MaskFiller.load(trained_masked).name}\n")
    assert [len(line.split("\t")) for line in output.splitlines()] == [4, 1]
    code, output, _ = headwise("fill", str(trained_masked), "--json", text)
    (found,) = [json.loads(line) for line in output.splitlines()]
    assert len(found["masks"]) == 1
    assert len(found["masks"][0]) == 5
    code, _, errors = headwise("fill", str(trained_masked), "no mask")
    assert (code, "has no [MASK]" in errors) == (2, True)
    (path,) = write_book(tmp_path, documents=40, seed=9).paths
    code, output, errors = headwise("evaluate", str(trained_masked), "--text", str(path), "--json")
    assert code == 0, errors
    (run,) = json.loads(output)["runs"]
    assert run["accuracy"] > 0.5
    assert run["perplexity"] < 4
    page = tmp_path / "attention.html"
    code, _, errors = headwise("attention", str(trained_masked), text, "--out", str(page))
    assert (code, "\\u2039class\\u203a" in page.read_text()) == (0, True), errors


def test_what_cannot_be_filled_is_refused(trained_masked: Path) -> None:
    filler = MaskFiller.load(trained_masked)
    assert filler.tokenizer.mask not in filler.tokenizer.text.encode("a <mask> [MASK]")
    assert filler.tokenizer.mask in filler.tokenizer.encode("a [MASK]")
    for text, message in (
        ("a\0 [MASK]", "a NUL character"),
        ("[MASK] " * 50, "50 tokens is too long: give at most 24"),
        ("x" * 10_000, "10,000 characters is too long"),
    ):
        with pytest.raises(RequestError, match=message):
            filler.fill(text)


SIZES = ("model.d_model=32", "model.d_ff=64", "model.dropout=0", "data.vocab_size=300")


def started(config: AnyConfig, run: Path, first: Path, files: object) -> dict[str, torch.Tensor]:
    """The weights before the first update."""
    train(config, run, text=files, init_from=first)  # type: ignore[arg-type]
    directory = RunDirectory(run)
    return read_weights(directory.step_directory(directory.steps()[0]))


def test_a_classifier_and_a_parser_start_from_its_encoder(
    trained_masked: Path, tmp_path: Path
) -> None:
    before = read_weights(RunDirectory(trained_masked).step_directory(700))
    tiny = ("train.max_steps=1", "train.save_every_steps=1", "train.schedule=linear")
    rate = ("train.peak_rate=1e-9", "train.warmup_steps=1", "train.average_last=1")
    classes = started(
        small_class_config(*SIZES, *tiny, *rate),
        tmp_path / "classes",
        trained_masked,
        write_labelled(tmp_path),
    )
    trees = started(
        small_tree_config(
            *SIZES, *tiny, *rate, "model.positions=learned", "model.max_positions=512"
        ),
        tmp_path / "trees",
        trained_masked,
        write_trees(tmp_path),
    )
    for weights, new in ((classes, ("head.",)), (trees, ("decoder.", "target_", "output."))):
        shared = {name for name in weights if not name.startswith(new)}
        assert shared == set(before)
        for name in shared:
            torch.testing.assert_close(weights[name], before[name], rtol=0, atol=1e-6)
        assert len(weights) > len(shared)


def test_models_that_do_not_fit_are_refused(
    trained_masked: Path, trained_lm: Path, tmp_path: Path
) -> None:
    files = write_labelled(tmp_path)
    other = small_class_config(*SIZES, "model.d_ff=48")
    with pytest.raises(CheckpointError, match=r"encoder\.layers\..* has shape"):
        train(other, tmp_path / "run", text=files, init_from=trained_masked)
    with pytest.raises(ConfigError, match="is a run of language-model, not of classification"):
        train(small_class_config(*SIZES), tmp_path / "run", text=files, init_from=trained_lm)
    without_norm = small_class_config(*SIZES, "model.norm_order=post")
    with pytest.raises(CheckpointError, match=r"encoder\.final_norm"):
        train(without_norm, tmp_path / "run", text=files, init_from=trained_masked)
    assert not (tmp_path / "run").exists()


def test_the_command_trains_and_says_what_it_starts_from(
    trained_masked: Path, tmp_path: Path, headwise: Headwise
) -> None:
    (path,) = write_book(tmp_path).paths
    settings = [part for setting in MASK_SETTINGS for part in ("--set", setting)]
    run = tmp_path / "run"
    code, _, errors = headwise(
        "train", "bert-tiny", "--text", str(path), "--run", str(run), *settings
    )
    assert code == 0, errors
    (table,) = write_labelled(tmp_path).paths
    sizes = [part for setting in (*SIZES, "train.max_minutes=0") for part in ("--set", setting)]
    sizes += ["--set", "train.decay_by=steps", "--set", "train.max_steps=2"]
    columns = ("--text-column", "text", "--label-column", "label")
    start = ("--init-from", str(trained_masked), "--run", str(tmp_path / "classes"))
    code, _, errors = headwise(
        "train", "text-tiny", "--table", str(table), *columns, *start, *sizes,
        "--set", "model.num_layers=1", "--set", "model.num_heads=2",
    )  # fmt: skip
    assert code == 0, errors
    assert ", but for head.*" in " ".join(errors.split())
