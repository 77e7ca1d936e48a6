"""Classifiers of images and sounds, from files to answers: by the commands and over HTTP."""

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from headwise.data.images import png
from headwise.errors import ConfigError, DataError
from headwise.runs.checkpoint import read_weights
from headwise.runs.directory import RunDirectory
from headwise.runs.metrics import read_metrics
from headwise.serving.limits import Limits
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import LabelledFiles
from headwise.training.events import Event, Note
from headwise.workflows.serve import load_served
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.servers import Running, post_form, running
from tests.small_runs import (
    IMAGE_SETTINGS,
    SOUND_SETTINGS,
    digests,
    small_class_config,
    small_vector_config,
    write_images,
    write_labelled,
    write_sounds,
)

Write = Callable[[Path], LabelledFiles]
KINDS = [("vit-tiny", write_images), ("speech-tiny", write_sounds)]


@pytest.mark.parametrize("kind", ["image", "sound"])
def test_they_learn(kind: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(f"trained_{kind}_classifier")
    *_, last = [e for e in read_metrics(run / "metrics.jsonl") if e["kind"] == "valid"]
    assert last["accuracy"] > 90


@pytest.mark.parametrize(("recipe", "write"), KINDS)
def test_a_run_is_resumed_to_the_bit(tmp_path: Path, recipe: str, write: Write) -> None:
    files = write(tmp_path)
    train(small_vector_config(recipe), tmp_path / "whole", text=files)
    train(small_vector_config(recipe, "train.max_steps=4"), tmp_path / "parts", text=files)
    config = tmp_path / "parts" / "config.toml"
    config.write_text(config.read_text().replace("max_steps = 4", "max_steps = 12"))
    train(small_vector_config(recipe), tmp_path / "parts", text=files)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_a_run_of_other_inputs_is_not_resumed(trained_classifier: Path, tmp_path: Path) -> None:
    config = small_vector_config("vit-tiny")
    with pytest.raises(
        ConfigError, match=r"data\.input is 'text' there and 'images' here; the text"
    ):
        train(config, trained_classifier, text=write_images(tmp_path, count=40))


_UNCHANGED = ("train.max_steps=1", "train.save_every_steps=1", "train.peak_rate=1e-9")


@pytest.mark.parametrize("kind", ["text", "image"])
def test_other_classes_start_from_the_encoder_alone(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "text":
        first: Path = request.getfixturevalue("trained_classifier")
        files = write_labelled(tmp_path)
        (path,) = files.paths
        path.write_text(path.read_text() + "ban bara,sea\nkora,sea\n")
        changes = ("model.d_model=32", "model.dropout=0", "train.schedule=linear", *_UNCHANGED)
        config = small_class_config(*changes)
        classes: tuple[str, ...] = ("hill", "river", "sea", "wood")
    else:
        first = request.getfixturevalue("trained_image_classifier")
        files = write_images(tmp_path, count=60)
        (folder,) = files.paths
        (folder / "lying").rename(folder / "flat")
        config = small_vector_config("vit-tiny", "data.flip=false", *_UNCHANGED)
        classes = ("flat", "standing")
    said: list[str] = []
    train(config, tmp_path / "run", text=files, init_from=first, on_event=lambda e: _note(e, said))
    assert any(
        "starting from the weights of" in line and ", but for head.*" in line for line in said
    )
    assert Classifier.load(tmp_path / "run").classes == classes
    runs = RunDirectory(first), RunDirectory(tmp_path / "run")
    before, after = (read_weights(run.step_directory(run.steps()[-1])) for run in runs)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        if name == "head.weight":
            assert after[name].shape[0] == len(classes)
            assert after[name].shape != tensor.shape or not torch.allclose(after[name], tensor)
        elif name != "head.bias":
            torch.testing.assert_close(after[name], tensor, atol=1e-6, rtol=0)


def _note(event: Event, into: list[str]) -> None:
    if isinstance(event, Note):
        into.append(event.text)


def test_the_same_classes_keep_their_head(trained_image_classifier: Path, tmp_path: Path) -> None:
    config = small_vector_config("vit-tiny", "data.flip=false", *_UNCHANGED)
    files = write_images(tmp_path, count=60)
    train(config, tmp_path / "run", text=files, init_from=trained_image_classifier)
    runs = RunDirectory(trained_image_classifier), RunDirectory(tmp_path / "run")
    before, after = (read_weights(run.step_directory(run.steps()[-1])) for run in runs)
    torch.testing.assert_close(after["head.weight"], before["head.weight"], atol=1e-6, rtol=0)


def test_a_run_of_other_inputs_is_no_start(trained_classifier: Path, tmp_path: Path) -> None:
    files, config = write_images(tmp_path, count=40), small_vector_config("vit-tiny")
    with pytest.raises(ConfigError, match="is of classification of text, not of images"):
        train(config, tmp_path / "run", text=files, init_from=trained_classifier)


def test_validation_is_not_changed_at_random(tmp_path: Path) -> None:
    files = write_images(tmp_path)
    losses = []
    for number, change in enumerate(("data.shift=0", "data.shift=3")):
        run = tmp_path / f"run-{number}"
        config = small_vector_config("vit-tiny", change, "data.flip=false", "train.peak_rate=1e-9")
        train(config, run, text=files)
        losses += [e["loss"] for e in read_metrics(run / "metrics.jsonl") if e["kind"] == "valid"]
    assert losses[0] == pytest.approx(losses[2], abs=1e-5)


@pytest.mark.parametrize("kind", ["image", "sound"])
def test_neighbours_change_no_probability(kind: str, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(f"trained_{kind}_classifier")
    generator = np.random.default_rng(1)
    examples: list[Any] = [
        (generator.standard_normal(length) * 0.1, 8_000) for length in (300, 4_000, 1_700, 2_900)
    ]
    if kind == "image":
        examples = list(generator.integers(0, 255, (4, 12, 12), dtype=np.uint8))
    classifier = Classifier.load(run)
    together = classifier.probabilities(examples)
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-12)
    for several in (examples, tuple(examples), iter(examples)):
        assert len(classifier.classify(several)) == 4
    for example, expected in zip(examples, together, strict=True):
        assert len(classifier.classify(example)) == 1
        np.testing.assert_allclose(classifier.probabilities([example])[0], expected, atol=1e-5)


def test_images_by_the_commands(tmp_path: Path, headwise: Headwise) -> None:
    (folder,) = write_images(tmp_path).paths
    (folder / "lying" / ".DS_Store").write_bytes(b"x")
    settings = [part for setting in IMAGE_SETTINGS for part in ("--set", setting)]
    run = str(tmp_path / "run")
    code, _, errors = headwise("train", "--images", str(folder), "--run", run, *settings)
    assert code == 0, errors
    said = "training vit-tiny: guessed from --images: classification of images"
    assert errors.splitlines()[0] == said
    assert "left out 1 of 241 images: a hidden file" in errors
    assert "classes: lying 120, standing 120" in errors
    paths = [str(folder / "lying" / "1.png"), str(folder / "standing" / "2.png")]
    code, output, errors = headwise("classify", run, "--json", *paths)
    assert code == 0, errors
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["file"] for row in rows] == paths
    code, output, errors = headwise("evaluate", run, "--images", str(folder), "--baseline")
    assert code == 0, errors
    assert "baseline: pixels, logistic regression, C = " in output
    assert f"({folder / 'lying'}" in output or f"({folder / 'standing'}" in output
    page = tmp_path / "report.html"
    code, _, errors = headwise("report", run, "--images", str(folder), "--out", str(page))
    assert code == 0, errors
    assert page.read_text().count('class="sample" src="data:image/png;base64,') == 6
    assert re.search('alt="image 6, class (lying|standing)"', page.read_text())
    assert '"kind":"image"' in page.read_text()
    page = tmp_path / "attention.html"
    code, _, errors = headwise("attention", run, paths[0], "--out", str(page))
    assert code == 0, errors
    assert '"columns":3' in page.read_text()
    code, _, errors = headwise("classify", run, str(tmp_path / "missing.png"))
    assert (code, "missing.png" in errors) == (2, True)


@pytest.mark.parametrize("as_json", [True, False])
def test_lenient_goes_on_after_a_file_that_cannot_be_read(
    as_json: bool, trained_image_classifier: Path, tmp_path: Path, headwise: Headwise
) -> None:
    pixels = np.zeros((12, 12, 1), np.uint8)
    pixels[4] = 250
    paths = [tmp_path / name for name in ("a.png", "broken.png", "missing.png", "b.png")]
    for path in (paths[0], paths[3]):
        path.write_bytes(png(pixels))
    paths[1].write_bytes(png(pixels)[:40])
    options = ["--lenient", *(["--json"] if as_json else []), *map(str, paths)]
    code, output, errors = headwise("classify", str(trained_image_classifier), *options)
    assert code == 0, errors
    lines = output.splitlines()
    if as_json:
        rows = [json.loads(line) for line in lines]
        assert [row["file"] for row in rows] == list(map(str, paths))
        assert [row.get("labels") for row in rows] == [["lying"], None, None, ["lying"]]
        assert "missing.png: cannot be read" in rows[2]["error"]
    else:
        assert [line.split("\t")[0] for line in lines] == ["lying", "", "", "lying"]
    assert "2 images were not readable; the first: " in errors
    assert "broken.png" in errors
    code, _, errors = headwise("classify", str(trained_image_classifier), *map(str, paths))
    assert (code, "broken.png" in errors) == (2, True)


def test_sounds_by_the_commands(tmp_path: Path, headwise: Headwise) -> None:
    (table,) = write_sounds(tmp_path).paths
    columns = ("--audio-column", "path", "--label-column", "pitch")
    changes = (*SOUND_SETTINGS, "data.rate=16000", "data.longest_seconds=0.3")
    settings = [part for setting in changes for part in ("--set", setting)]
    run = str(tmp_path / "run")
    code, _, errors = headwise("train", "--table", str(table), *columns, "--run", run, *settings)
    assert code == 0, errors
    first = errors.splitlines()[0]
    assert first.endswith(": guessed from --audio-column: classification of audio")
    assert "120 sounds resampled to 16,000 Hz (data.rate)" in errors
    assert "after 0.3 s (data.longest_seconds)" in errors
    code, output, errors = headwise("classify", run, str(tmp_path / "sounds-1" / "3.wav"))
    assert code == 0, errors
    assert output.split("\t")[0] in ("high", "low")
    code, output, errors = headwise("evaluate", run, "--table", str(table), *columns)
    assert (code, "120 examples" in output) == (0, True), errors
    assert "120 sounds resampled to 16,000 Hz (data.rate)" in output
    assert "sounds cut off after 0.3 s (data.longest_seconds)" in output
    page = tmp_path / "report.html"
    code, _, errors = headwise("report", run, "--out", str(page))
    assert code == 0, errors
    assert "Spectrogram" in page.read_text()


def test_idx_files_are_read_like_folders(tmp_path: Path) -> None:
    files = write_images(tmp_path, count=60)
    folder = files.paths[0]
    paths = sorted(folder.rglob("*.png"))
    classifier_pixels = b"".join(_grey(path) for path in paths)
    (tmp_path / "a-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, len(paths), 14, 14) + classifier_pixels
    )
    labels = bytes(path.parent.name == "standing" for path in paths)
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(paths)) + labels)
    arrays = LabelledFiles.of(tmp_path / "a-images-idx3-ubyte", input="images")
    for name, given in (("folder", files), ("arrays", arrays)):
        train(small_vector_config("vit-tiny"), tmp_path / name, text=given)
    assert digests(tmp_path / "folder") == digests(tmp_path / "arrays")
    assert Classifier.load(tmp_path / "arrays").classes == ("0", "1")


def _grey(path: Path) -> bytes:
    from headwise.data.images import decode_image

    return decode_image(path, str(path), colour=False).tobytes()


def test_what_cannot_be_read_is_an_error_with_its_place(tmp_path: Path) -> None:
    (folder,) = write_images(tmp_path, count=60).paths
    broken = folder / "lying" / "zz.png"
    broken.write_bytes(png(np.zeros((9, 9, 1), np.uint8))[:45])
    config, files = small_vector_config("vit-tiny"), LabelledFiles.of(folder, input="images")
    with pytest.raises(DataError, match=r"lying/zz\.png: "):
        train(config, tmp_path / "run", text=files)
    assert not (tmp_path / "run").exists()
    said: list[str] = []
    train(
        config,
        tmp_path / "run",
        text=files,
        lenient=True,
        on_prepared=lambda report: said.extend(report.lines()),
    )
    about = "left out 1 of 61 images: not readable"
    assert any(about in line and "zz.png: " in line for line in said), said


def test_rows_of_a_table_without_a_file_are_errors_with_their_line(tmp_path: Path) -> None:
    (table,) = write_sounds(tmp_path, count=40).paths
    lines = table.read_text().splitlines()
    for row, message in (
        ("sounds-1/none.wav,high", r"sounds-1\.csv:42: .*none\.wav"),
        (",high", r"sounds-1\.csv:42: has no path in 'path'"),
        ("sounds-1,high", r"sounds-1\.csv:42: "),
    ):
        table.write_text("\n".join([*lines, row]) + "\n")
        files = LabelledFiles.of(table, input="audio", column="path", label_column="pitch")
        with pytest.raises(DataError, match=message):
            train(small_vector_config("speech-tiny"), tmp_path / "run", text=files)
    text = tmp_path / "a.txt"
    text.write_text("high\n")
    with pytest.raises(DataError, match=r"a\.txt: no labelled sounds: give a folder"):
        train(
            small_vector_config("speech-tiny"),
            tmp_path / "run",
            text=LabelledFiles.of(text, input="audio"),
        )


def post(server: Running, *parts: tuple[str, bytes, bool]) -> tuple[int, Any]:
    return post_form(server, "/v1/classify", *parts)


def test_files_and_texts_are_served_side_by_side(
    trained_classifier: Path,
    trained_image_classifier: Path,
    trained_sound_classifier: Path,
    tmp_path: Path,
) -> None:
    runs = []
    for name, run in (
        ("texts", trained_classifier),
        ("images", trained_image_classifier),
        ("sounds", trained_sound_classifier),
    ):
        shutil.copytree(run, tmp_path / name)
        runs.append(tmp_path / name)
    pixels = np.zeros((12, 12, 1), np.uint8)
    pixels[4] = 250
    sound = tmp_path / "a.wav"
    soundfile.write(sound, np.sin(np.arange(3_000) * 1.5) * 0.3, 8_000)
    with running(load_served(runs), limits=Limits(upload_bytes=50_000)) as server:
        status, answer = post(
            server,  # Without a model: the first that takes files.
            ("top", b"2", False),
            ("picture", b"true", False),
            ("file", png(pixels), True),
            ("file", png(pixels.swapaxes(0, 1)), True),
        )
        assert status == 200, answer
        expected = Classifier.load(trained_image_classifier).classify([pixels], top=2)[0]
        first, second = answer["files"]
        assert first["labels"] == ["lying"] == list(expected.labels)
        assert second["labels"] == ["standing"]
        assert first["classes"][1]["probability"] == pytest.approx(
            expected.answers[1].probability, abs=1e-5
        )
        picture = first["picture"]
        assert (picture["kind"], picture["rows"], picture["columns"]) == ("image", 3, 3)
        assert len(picture["attention"]) == 9
        assert 0 < sum(picture["attention"]) <= 1.001
        assert picture["png"].startswith("data:image/png;base64,")

        status, answer = post(server, ("model", b"sounds", False), ("f", sound.read_bytes(), True))
        assert (status, answer["files"][0]["labels"]) == (200, ["high"])
        assert answer["files"][0]["picture"] is None
        soundfile.write(sound, np.sin(np.arange(9_000) * 1.5) * 0.3, 8_000)
        status, answer = post(
            server,
            ("model", b"sounds", False),
            ("picture", b"true", False),
            ("f", sound.read_bytes(), True),
        )
        assert (status, answer["files"][0]["is_cut"]) == (200, True), answer
        assert answer["files"][0]["picture"]["kind"] == "sound"

        for parts, message in (
            ([("model", b"images", False)], "send from 1 to 16 images"),
            ([("model", b"images", False), ("f", b"no image", True)], "the image: "),
            ([("model", b"sounds", False), ("f", png(pixels), True)], "the sound: "),
            ([("model", b"texts", False), ("f", png(pixels), True)], "texts takes texts: send"),
            ([("model", b"images", False), ("top", b"x", False), ("f", b"", True)], "top: "),
        ):
            status, answer = post(server, *parts)
            assert (status, message in answer["error"]) == (400, True), answer
        status, answer = post(server, ("model", b"none", False), ("f", b"", True))
        assert (status, "there is no model of that name" in answer["error"]) == (404, True)
        status, answer = post(server, ("model", b"images", False), ("f", bytes(60_000), True))
        assert (status, "50,000 bytes at most" in answer["error"]) == (413, True)
        status, answer, _ = server.ask("POST", "/v1/classify", {"q": "x", "model": "images"})
        assert (status, "images takes images: send them as files" in answer["error"]) == (400, True)
        for path in ("/v1/translate", "/v1/parse"):
            status, answer, _ = server.ask("POST", path, {"q": "x"})
            said = f"no model here can {path[4:]}: texts answers /v1/classify, images answers"
            assert (status, said in answer["error"]) == (400, True), answer
        status, answer, _ = server.ask("POST", "/v1/translate", {"q": "x", "model": "images"})
        assert (status, answer["error"]) == (
            400,
            "images cannot translate: it answers /v1/classify",
        )
        status, answer, _ = server.ask("POST", "/v1/classify", {"q": "ban bara"})
        assert (status, answer["texts"][0]["labels"]) == (200, ["river"])
        status, answer, _ = server.ask("GET", "/v1/tasks")
        panels = [each["panel"] for each in answer["models"]]
        assert [panel["input"] for panel in panels] == ["text", "image", "sound"]
        assert [panel["most_pixels"] for panel in panels] == [0, 1 << 24, 0]
        assert (panels[2]["rate"], panels[2]["longest_seconds"]) == (8_000, 0.5)
