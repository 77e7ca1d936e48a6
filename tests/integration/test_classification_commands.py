"""A classifier from a table to its answers, by the commands and over HTTP."""

import csv
import json
import subprocess
import time
from pathlib import Path

import pytest

from headwise.errors import DataError
from headwise.runs.metrics import read_metrics
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import LabelledFiles
from headwise.tasks.classification.scores import evaluate_runs
from headwise.tasks.classification.text import TEXT, TextEncoder
from headwise.tasks.encoders import Encoded
from headwise.workflows.serve import load_served
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.servers import running
from tests.small_runs import CLASS_SETTINGS, digests, small_class_config, write_labelled

TEST_COLUMNS = ("--text-column", "text", "--label-column", "label")


def labelled(path: Path) -> LabelledFiles:
    return LabelledFiles.of(path, column="text", label_column="label")


@pytest.fixture(scope="module")
def test_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = write_labelled(tmp_path_factory.mktemp("test"), count=150, seed=9).paths
    return path


def test_a_table_is_learned(trained_classifier: Path) -> None:
    *_, last = [
        line
        for line in read_metrics(trained_classifier / "metrics.jsonl")
        if line["kind"] == "valid"
    ]
    assert last["accuracy"] > 85
    assert 0 < last["macro_f1"] <= 100


def test_a_run_is_resumed_to_the_bit(tmp_path: Path) -> None:
    files = write_labelled(tmp_path)
    train(small_class_config(), tmp_path / "whole", text=files)
    train(small_class_config("train.max_steps=4"), tmp_path / "parts", text=files)
    config = tmp_path / "parts" / "config.toml"
    config.write_text(config.read_text().replace("max_steps = 4", "max_steps = 12"))
    train(small_class_config(), tmp_path / "parts", text=files)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_the_command_trains(tmp_path: Path, headwise: Headwise) -> None:
    (path,) = write_labelled(tmp_path).paths
    settings = [part for setting in CLASS_SETTINGS for part in ("--set", setting)]
    options = ("--table", str(path), *TEST_COLUMNS, "--run", str(tmp_path / "run"))
    code, output, errors = headwise("train", "text-tiny", *options, *settings)
    assert code == 0, errors
    assert "finished at step 12" in output
    assert "classes: hill" in errors
    options = ("--table", str(path), *TEST_COLUMNS, "--run", str(tmp_path / "guessed"))
    code, output, errors = headwise("train", *options, *settings)
    assert code == 0, errors
    said = "training text-tiny: guessed from --table: classification"
    assert errors.splitlines()[0] == said
    assert digests(tmp_path / "guessed") == digests(tmp_path / "run")
    code, _, errors = headwise("train", "text-tiny", "--run", str(tmp_path / "new"))
    assert (code, "give its labelled texts (--table)" in errors) == (2, True)


def test_arguments_are_classified(trained_classifier: Path, headwise: Headwise) -> None:
    code, output, errors = headwise("classify", str(trained_classifier), "ban bara", "kan kora")
    assert (code, errors) == (0, f"using {Classifier.load(trained_classifier).name}\n")
    lines = [line.split("\t") for line in output.splitlines()]
    assert [label for label, _ in lines] == ["river", "wood"]
    assert all(0.5 < float(probability) <= 1 for _, probability in lines)
    _, output, _ = headwise("classify", str(trained_classifier), "--top", "2", "ban bara")
    assert [len(line.split("\t")) for line in output.splitlines()] == [4]


def test_a_filter_writes_a_line_for_each(trained_classifier: Path, preloaded: Path) -> None:
    result = subprocess.run(
        [str(preloaded / "headwise"), "classify", str(trained_classifier), "--json"],
        input=b"ban bara\n\nkan kora\r\n\xff\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    rows = [json.loads(line) for line in result.stdout.decode().splitlines()]
    assert [row["labels"] for row in (rows[0], rows[2])] == [["river"], ["wood"]]
    assert rows[0]["classes"][0]["label"] == "river"
    assert len(rows) == 3
    assert b"stdin:4: not UTF-8 text at byte 1" in result.stderr


def test_labelled_texts_are_evaluated(
    trained_classifier: Path, test_file: Path, headwise: Headwise
) -> None:
    options = ("--table", str(test_file), *TEST_COLUMNS)
    code, output, errors = headwise("evaluate", str(trained_classifier), *options, "--json")
    assert code == 0, errors
    (run,) = json.loads(output)["runs"]
    with test_file.open() as file:
        rows = list(csv.DictReader(file))
    found = Classifier.load(trained_classifier).classify([row["text"] for row in rows])
    right = [each.label == row["label"] for each, row in zip(found, rows, strict=True)]
    assert run["accuracy"] == pytest.approx(sum(right) / len(right))
    assert run["examples"] == len(rows) == 150
    assert 0 <= run["accuracy_interval"]["margin"] < 0.2
    wrong = [mistake for mistake in run["mistakes"] if mistake["gold"] == mistake["found"]]
    assert not wrong
    code, output, _ = headwise("evaluate", str(trained_classifier), *options)
    assert (code, "gold \\ found" in output) == (0, True)
    code, output, _ = headwise("evaluate", *[str(trained_classifier)] * 2, *options)
    assert (code, len(output.splitlines())) == (0, 3)


def test_a_run_is_compared_with_a_baseline(
    trained_classifier: Path, test_file: Path, tmp_path: Path, headwise: Headwise
) -> None:
    options = ("--table", str(test_file), *TEST_COLUMNS, "--baseline")
    code, output, errors = headwise("evaluate", str(trained_classifier), *options)
    assert code == 0, errors
    assert "baseline: TF-IDF, logistic regression, C = " in output
    *_, verdict = output.splitlines()
    assert "the baseline" in verdict
    code, output, _ = headwise("evaluate", str(trained_classifier), *options, "--json")
    found = json.loads(output)
    assert 0.6 < found["baseline"]["accuracy"] <= 1
    assert found["verdicts"] == [verdict]
    page = tmp_path / "report.html"
    code, _, errors = headwise("report", str(trained_classifier), *options, "--out", str(page))
    assert (code, "baseline" in page.read_text()) == (0, True), errors


def test_a_label_that_training_lacks_is_an_error_with_its_line(
    trained_classifier: Path, tmp_path: Path, headwise: Headwise
) -> None:
    (tmp_path / "t.csv").write_text("text,label\nban,river\nkan,sea\n")
    options = ("--table", str(tmp_path / "t.csv"), *TEST_COLUMNS)
    code, _, errors = headwise("evaluate", str(trained_classifier), *options)
    assert code == 2
    assert f"{tmp_path / 't.csv'}:3: the label 'sea' is not in the training data" in errors
    code, _, errors = headwise("evaluate", str(trained_classifier))
    assert (code, "labelled texts (--table)" in errors) == (2, True)


def test_a_label_that_training_lacks_is_found_before_texts_are_classified(
    trained_classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("text,label\nban,river\nkan,sea\n")
    monkeypatch.setattr(Classifier, "probabilities", None)
    with pytest.raises(DataError, match=r"t\.csv:3: the label 'sea' is not in the training data"):
        evaluate_runs([trained_classifier], labelled(tmp_path / "t.csv"), kind=TEXT)


def test_the_time_is_that_of_reading_too(
    trained_classifier: Path, test_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.0
    encode = TextEncoder.encode

    def encode_within_a_second(encoder: TextEncoder, content: str) -> Encoded:
        nonlocal seconds
        seconds += 1
        return encode(encoder, content)

    monkeypatch.setattr(TextEncoder, "encode", encode_within_a_second)
    monkeypatch.setattr(time, "perf_counter", lambda: seconds)
    (run,) = evaluate_runs([trained_classifier], labelled(test_file), kind=TEXT).runs
    assert run.seconds == run.examples == 150


def test_a_report_and_its_attention(
    trained_classifier: Path, test_file: Path, tmp_path: Path, headwise: Headwise
) -> None:
    page = tmp_path / "report.html"
    options = ("--table", str(test_file), *TEST_COLUMNS, "--out", str(page))
    code, _, errors = headwise("report", str(trained_classifier), *options)
    assert code == 0, errors
    text = page.read_text()
    assert "puts texts into 3 classes" in text
    assert "Calibration error" in text
    assert 'aria-label="Confusion matrix"' in text
    assert '<th scope="row">hill</th><td class="right">' in text
    assert "\\u2039class\\u203a" in text
    attention = tmp_path / "attention.html"
    code, _, errors = headwise(
        "attention", str(trained_classifier), "ban bara", "--out", str(attention)
    )
    assert code == 0, errors
    assert "\\u2039class\\u203a" in attention.read_text()


def test_other_verbs_name_the_right_one(trained_classifier: Path, headwise: Headwise) -> None:
    code, _, errors = headwise("translate", str(trained_classifier), "ban")
    assert (code, "use `headwise classify" in errors) == (2, True)


def test_it_is_served(trained_classifier: Path) -> None:
    expected = Classifier.load(trained_classifier).classify(["ban bara", "kan"], top=3)
    with running(load_served([trained_classifier])) as server:
        status, answer, _ = server.ask("POST", "/v1/classify", {"q": ["ban bara", "kan"]})
        assert status == 200, answer
        for found, right in zip(answer["texts"], expected, strict=True):
            assert found["labels"] == list(right.labels)
            for ours, theirs in zip(found["classes"], right.answers, strict=True):
                assert ours["label"] == theirs.label
                assert ours["probability"] == pytest.approx(theirs.probability, abs=1e-6)
        assert answer["text"].splitlines()[0].startswith("river: ")
        status, answer, _ = server.ask("POST", "/v1/classify", {"q": []})
        assert (status, "from 1 to 256 texts" in str(answer)) == (400, True)
        status, answer, _ = server.ask("GET", "/v1/tasks")
        assert answer["models"][0]["path"] == "/v1/classify"
