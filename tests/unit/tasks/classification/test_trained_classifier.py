"""A trained classifier: probabilities, batches, attention; preparation; the loss."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headwise.config import ClassificationConfig, Config, Vocab
from headwise.data import TokenShards
from headwise.data.shards import Packed
from headwise.data.tokenizer import load_stream, save_streams
from headwise.errors import ConfigError, DataError, RequestError
from headwise.model import build_model
from headwise.tasks.classification.classes import Classes
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import LabelledFiles
from headwise.tasks.classification.objective import ClassificationStep
from headwise.tasks.classification.prepare import ClassReport, prepare_examples
from headwise.tasks.classification.task import TEXT as TEXT_TASK
from headwise.tasks.classification.text import TEXT
from headwise.workflows.train import train
from tests.small_runs import small_class_config, write_labelled

VOCAB = Vocab(source_size=30, target_size=4)


def prepared(
    files: LabelledFiles,
    directory: Path,
    *changes: str,
    valid: LabelledFiles | None = None,
    lenient: bool = False,
) -> ClassReport:
    config: ClassificationConfig = small_class_config(*changes)
    return prepare_examples(files, config, directory, TEXT, valid=valid, lenient=lenient)


def labelled(path: Path, rows: list[tuple[str, str]]) -> LabelledFiles:
    lines = ["text,label", *(f"{text},{label}" for text, label in rows)]
    path.write_text("\n".join(lines) + "\n")
    return LabelledFiles.of(path, column="text", label_column="label")


def test_texts_are_classified(trained_classifier: Path) -> None:
    classifier = Classifier.load(trained_classifier)
    assert classifier.classes == ("hill", "river", "wood")
    river, wood = classifier.classify(["ban bara buti", "kan kora\n kuti "], top=3)
    assert (river.label, wood.labels) == ("river", ("wood",))
    assert sum(answer.probability for answer in river.answers) == pytest.approx(1, abs=1e-12)
    probabilities = [answer.probability for answer in river.answers]
    assert probabilities == sorted(probabilities, reverse=True)
    (one,) = classifier.classify("ban bara buti")
    assert one.label == river.label
    assert one.probability == pytest.approx(river.probability, abs=1e-5)
    assert len(classifier.classify("ban", top=99)[0].answers) == 3


def test_other_texts_change_no_answer(trained_classifier: Path) -> None:
    together, alone = (Classifier.load(trained_classifier, batch_size=n) for n in (None, 1))
    texts = ["ban", "", "kan " * 40, "dan dara", "🙂", "kora"]
    np.testing.assert_allclose(together.probabilities(texts), alone.probabilities(texts), atol=1e-5)
    first = alone.probabilities(texts[:1])
    assert (alone.probabilities(texts)[:1] == first).all()


def test_long_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    files = write_labelled(tmp_path)
    report = prepared(files, tmp_path / "data", "data.longest=6")
    assert report.cut > 0
    assert any("cut off" in line and "after 6 tokens" in line for line in report.lines())
    shards = TokenShards(tmp_path / "data" / "train")
    assert int(shards.lengths("text").max()) == 6
    train(small_class_config("data.longest=6", "train.max_steps=1"), tmp_path / "run", text=files)
    classifier = Classifier.load(tmp_path / "run")
    long, longer, short = classifier.classify(["ban bara ban bara ban", "ban " * 10_000, "ban"])
    assert (long.is_cut, longer.is_cut, short.is_cut) == (True, True, False)


@pytest.mark.parametrize(
    ("text", "message"), [("a\0b", "a NUL character"), ("a\ud800", "half of a surrogate pair")]
)
def test_what_is_no_text_is_refused(trained_classifier: Path, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Classifier.load(trained_classifier).classify([text])


def test_attention_starts_at_the_class_token(trained_classifier: Path) -> None:
    pair = Classifier.load(trained_classifier).trace("ban bara", most_tokens=50)
    (layer,) = pair.trace.encoder.self_attention
    assert pair.source_tokens[0] == "‹class›"
    assert layer.shape[2:] == (len(pair.source_tokens) + 1,) * 2  # And eos.
    assert not pair.trace.decoder.self_attention
    with pytest.raises(RequestError, match="a classifier has no target"):
        Classifier.load(trained_classifier).trace("ban", "hill", most_tokens=50)


def test_preparation_counts_and_holds_out_by_text(tmp_path: Path) -> None:
    rows = [(f"text {number % 50}", "xy"[number % 2]) for number in range(200)] + [("rare", "z")]
    report = prepared(labelled(tmp_path / "t.csv", rows), tmp_path / "data")
    assert report.classes == {"x": 100, "y": 100, "z": 1}
    assert report.train_examples + report.valid_examples == 201
    assert 0 < report.valid_examples <= 60
    subwords = load_stream(tmp_path / "data", "text")
    parts = [TokenShards(tmp_path / "data" / part) for part in ("train", "valid")]
    texts = [
        {subwords.decode(part.sequence("text", n).tolist()[1:-1]) for n in range(len(part))}
        for part in parts
    ]
    assert not texts[0] & texts[1]
    lines = report.lines()
    assert lines[1] == "classes: x 100, y 100, z 1"
    assert "classes of a single example, too few to learn: z" in lines
    stored = json.loads((tmp_path / "data" / "report.json").read_text())
    assert stored["classes"] == report.classes


def test_classes_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    rows = [(f"text number {number}", str(number % 12)) for number in range(240)]
    prepared(labelled(tmp_path / "t.csv", rows), tmp_path / "data")
    assert Classes.load(tmp_path / "data").names == tuple(map(str, range(12)))


def test_labels_that_training_lacks_are_faults(tmp_path: Path) -> None:
    files = labelled(tmp_path / "t.csv", [(f"text {n}", "xy"[n % 2]) for n in range(100)])
    valid = labelled(tmp_path / "v.csv", [("a", "x"), ("b", "new")])
    with pytest.raises(DataError, match=r"v\.csv:3: the label 'new' is not in the training data"):
        prepared(files, tmp_path / "data", valid=valid)
    assert not (tmp_path / "data").exists()
    report = prepared(files, tmp_path / "data", valid=valid, lenient=True)
    assert (report.train_examples, report.valid_examples) == (100, 1)
    assert report.valid.dropped["a label that the training data lacks"] == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], r"t\.csv: nothing to train on: of 0 texts none can be used"),
        ([("a", ""), ("", "x")], "nothing to train on: of 2 texts none can be used"),
        ([("a b", "x"), ("c", "x")], r"have 1 class \('x'\): give at least two"),
    ],
)
def test_too_little_is_refused(tmp_path: Path, rows: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        prepared(labelled(tmp_path / "t.csv", rows), tmp_path / "data")


def test_balanced_weights_give_all_classes_the_same_sum(tmp_path: Path) -> None:
    rows = [(f"text {n}", "x" if n % 4 else "y") for n in range(100)]
    files = labelled(tmp_path / "t.csv", rows)
    valid = labelled(tmp_path / "v.csv", [("a", "x")])
    changes = ("data.class_weights=balanced",)
    prepared(files, tmp_path / "data", *changes, valid=valid)
    shards = TokenShards(tmp_path / "data" / "train")
    sums = [0.0, 0.0]
    for number in range(len(shards)):
        (label,) = shards.sequence("label", number).tolist()
        sums[label] += float(shards.sequence("weight", number)[0, 0])
    assert sums == pytest.approx([50, 50], abs=1e-4)
    with pytest.raises(DataError, match=r"not prepared with data\.class_weights = 'none'"):
        train(small_class_config(), tmp_path / "run", data=tmp_path / "data")
    with pytest.raises(ConfigError, match=r"data\.class_weights = 'balanced' must be 'none' with"):
        small_class_config("data.class_weights=balanced", "data.multi_label=true")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "not a table of classes"),
        ({"classes": ["x"]}, "its classes are not a list of 2 to"),
        ({"classes": ["x", 1]}, "1 is not the name of a class"),
        ({"classes": ["x", "a\nb"]}, r"'a\\nb' is not the name of a class"),
        ({"classes": ["x", ""]}, "'' is not the name of a class"),
        ({"classes": ["x", "x"]}, "a class is listed twice"),
    ],
)
def test_a_table_of_classes_is_checked(
    trained_classifier: Path, tmp_path: Path, table: object, message: str
) -> None:
    subwords = load_stream(trained_classifier, "text")
    save_streams(tmp_path, {"text": subwords}, {"label": table})
    with pytest.raises(DataError, match=rf"label\.json: {message}"):
        Classes.load(tmp_path)


def step(*, smoothing: float = 0.0, is_multi_label: bool = False) -> ClassificationStep:
    torch.manual_seed(1)
    config = small_class_config("model.dropout=0").model
    model = build_model(config, VOCAB, "classifier")
    return ClassificationStep(model, label_smoothing=smoothing, is_multi_label=is_multi_label)


LENGTHS = torch.full((5,), 7)
SRC = torch.randint(4, 30, (5, 7), generator=torch.Generator().manual_seed(2))


@pytest.mark.usefixtures("double")
def test_the_loss_is_torchs_cross_entropy() -> None:
    labels, weights = torch.tensor([[0], [3], [1], [1], [2]]), torch.tensor([1.0, 2, 0.5, 1, 3])
    objective = step(smoothing=0.1)
    sums, count = objective(SRC, LENGTHS, weights, labels)
    scores = objective.model(SRC)
    # Ours spreads the mass over the other classes, torch over all.
    each = F.cross_entropy(scores, labels[:, 0], label_smoothing=0.1 * 4 / 3, reduction="none")
    torch.testing.assert_close(sums.smoothed, (each * weights).sum())
    torch.testing.assert_close(sums.nll, F.cross_entropy(scores, labels[:, 0], reduction="sum"))
    assert (int(count), sums.nll.requires_grad) == (5, False)


@pytest.mark.usefixtures("double")
def test_the_loss_of_several_labels_is_torchs_binary_cross_entropy() -> None:
    labels = torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1]])
    sums, count = (objective := step(is_multi_label=True))(SRC, LENGTHS, torch.ones(5), labels)
    scores = objective.model(SRC)
    expected = F.binary_cross_entropy(scores.sigmoid(), labels.double(), reduction="sum")
    torch.testing.assert_close(sums.smoothed, expected)
    torch.testing.assert_close(sums.nll, expected.detach())
    assert int(count) == 20
    smoothed, _ = step(smoothing=0.2, is_multi_label=True)(SRC, LENGTHS, torch.ones(5), labels)
    assert float(smoothed.smoothed.detach()) != pytest.approx(float(sums.smoothed.detach()))


def test_batches_with_labels_of_another_run_are_refused() -> None:
    texts: Packed = (np.array([2, 9, 3, 2, 8, 3]), np.array([3, 3]))
    weights: Packed = (np.ones((2, 1), np.float32), np.ones(2, np.int64))
    for labels, lengths in (
        ([0, 4], [1, 1]),
        ([0, 1, 0, 2, 0, 0, 0, 0], [4, 4]),
        ([0] * 6, [3, 3]),
    ):
        packed: Packed = (np.array(labels), np.array(lengths))
        with pytest.raises(DataError, match="the labels are not those of 4 classes"):
            TEXT_TASK.collate({"text": texts, "weight": weights, "label": packed}, VOCAB, (1, 0))


def test_several_labels_are_learned(tmp_path: Path) -> None:
    letters = {"b": "river", "d": "hill", "k": "wood"}
    rows = []
    for number in range(500):
        chosen = [letter for place, letter in enumerate("bdk") if number >> place & 1]
        words = [f"{letter}an {letter}ora" for letter in chosen] or ["none"]
        rows.append((" ".join(words) + f" {number % 7}", "|".join(letters[c] for c in chosen)))
    config = small_class_config(
        "data.multi_label=true",
        "data.label_separator=|",
        "model.d_model=32",
        "model.dropout=0",
        "train.schedule=linear",
        "train.peak_rate=1e-2",
        "train.max_steps=150",
        "train.save_every_steps=75",
        "train.average_last=1",
        "train.label_smoothing=0",
    )
    train(config, tmp_path / "run", text=labelled(tmp_path / "t.csv", rows))
    classifier = Classifier.load(tmp_path / "run")
    both, neither = classifier.classify(["ban bora kan kora", "none"], top=3)
    assert set(both.labels) == {"river", "wood"}
    assert neither.labels == ()
    assert len(neither.answers) == 3


def test_the_default_config_names_what_does_not_fit() -> None:
    for values, message in (
        (
            {"train": {"batch_tokens": 100}},
            r"train\.batch_tokens = 100 must be at least data\.long",
        ),
        ({"model": {"tying": "untied"}}, r"model\.tying = 'untied' must be left out"),
        (
            {"model": {"num_decoder_layers": 2}},
            r"model\.num_decoder_layers = 2 must be model\.num_l",
        ),
        ({"train": {"bleu_pairs": 1}}, r"train\.bleu_pairs must be 0"),
        (
            {"model": {"positions": "learned", "max_positions": 100}},
            r"model\.max_positions = 100 must be at least data\.longest = 512",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            Config.from_dict({"task": "classification", **values})
    with pytest.raises(ConfigError, match=r"model\.pooling = 'mean' must be 'class-token' with"):
        Config.from_dict({"model": {"pooling": "mean"}})
    assert math.isclose(Config.from_dict({"task": "classification"}).model.dropout, 0.1)
