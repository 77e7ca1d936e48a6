"""Transcribers of images and sounds, from tables to texts: in Python and by the commands."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from headwise.config import AnyConfig, Vocab
from headwise.data.images import png
from headwise.decoding import SearchSettings
from headwise.errors import ConfigError, DataError, RequestError
from headwise.runs.metrics import read_metrics
from headwise.serving.limits import Limits
from headwise.tasks.transcription import long_sounds
from headwise.tasks.transcription import transcriber as transcriber_module
from headwise.tasks.transcription.files import TranscribedFiles
from headwise.tasks.transcription.search import search_texts
from headwise.tasks.transcription.times import timed_words
from headwise.tasks.transcription.transcriber import Transcriber
from headwise.tasks.vectors.audio import AudioEncoder
from headwise.workflows.serve import load_served
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.servers import post_form, running
from tests.small_runs import digests
from tests.transcribed import (
    LINE_SETTINGS,
    RATE,
    SOUND_SETTINGS,
    TONES,
    draw_line,
    say,
    small_line_config,
    small_sound_config,
    write_lines,
    write_spoken,
)

Write = Callable[..., TranscribedFiles]
KINDS = [
    pytest.param(small_line_config, write_lines, id="lines"),
    pytest.param(small_sound_config, write_spoken, id="sounds"),
]
IMAGE_COLUMNS = ("--image-column", "path", "--text-column", "text")
AUDIO_COLUMNS = ("--audio-column", "path", "--text-column", "text")


def settings(names: tuple[str, ...]) -> list[str]:
    return [part for setting in names for part in ("--set", setting)]


@pytest.mark.parametrize("kind", ["reader", "listener"])
def test_they_learn(kind: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(f"trained_{kind}")
    *_, last = [e for e in read_metrics(run / "metrics.jsonl") if e["kind"] == "valid"]
    assert last["exact"] > 70
    assert last["character_accuracy"] > 85


@pytest.mark.parametrize(("config", "write"), KINDS)
def test_a_run_is_resumed_to_the_bit(
    tmp_path: Path, config: Callable[..., AnyConfig], write: Write
) -> None:
    files = write(tmp_path, count=60)
    train(config(), tmp_path / "whole", text=files)
    train(config("train.max_steps=4"), tmp_path / "parts", text=files)
    written = tmp_path / "parts" / "config.toml"
    written.write_text(written.read_text().replace("max_steps = 4", "max_steps = 12"))
    train(config(), tmp_path / "parts", text=files)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_neighbours_change_no_text(trained_reader: Path) -> None:
    generator = np.random.default_rng(4)
    texts = ["LOT", "T", "TOLL O", "O L", "LLTO"]
    images = [draw_line(text, generator) for text in texts]
    together = Transcriber.load(trained_reader).transcribe(images)
    apart = Transcriber.load(trained_reader, batch_size=1)
    for image, expected in zip(images, together, strict=True):
        (found,) = apart.transcribe(image)
        assert found.text == expected.text
        assert found.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
    assert sum(found.text == text for found, text in zip(together, texts, strict=True)) >= 4


@pytest.mark.parametrize("kind", ["reader", "listener"])
def test_search_is_recomputation_whatever_the_neighbours(
    kind: str, request: pytest.FixtureRequest
) -> None:
    transcriber = Transcriber.load(request.getfixturevalue(f"trained_{kind}"))
    model, generator = transcriber.model.double(), np.random.default_rng(2)
    given: list[Any] = [draw_line(text, generator) for text in ("LOT", "T", "TOLL O", "OO L")]
    if kind == "listener":
        given = [(say(list(TONES)[:count], generator)[0], RATE) for count in (1, 3, 2, 3)]
    encoder: Any = transcriber.encoder
    sources = [encoder.encode(encoder.given(each)).values.astype(np.float64) for each in given]
    settings = SearchSettings(beam=4, nbest=3)
    together = search_texts(model, sources, settings, max_extra_tokens=4)
    for source, found in zip(sources, together, strict=True):
        (alone,) = search_texts(model, [source], settings, max_extra_tokens=4)
        assert [each.ids for each in found] == [each.ids for each in alone]
        for each, other in zip(found, alone, strict=True):
            assert each.log_prob == pytest.approx(other.log_prob, abs=1e-10)
            ids = torch.tensor([[*each.ids, Vocab.eos]])
            begun = torch.tensor([[Vocab.start, *each.ids]])
            with torch.no_grad():
                log_probs = model(torch.from_numpy(source)[None], begun).log_softmax(2)
            full = log_probs.gather(2, ids[:, :, None]).sum()
            assert each.log_prob == pytest.approx(float(full), abs=1e-10)


def test_an_image_is_given_in_any_way(trained_reader: Path, tmp_path: Path) -> None:
    pixels = draw_line("LOT", np.random.default_rng(1))
    (tmp_path / "a.png").write_bytes(png(pixels[:, :, None]))
    transcriber = Transcriber.load(trained_reader)
    path = tmp_path / "a.png"
    given: list[Any] = [str(path), path, path.read_bytes(), pixels]
    found = transcriber.transcribe(given)
    assert len({each.text for each in found}) == 1
    assert [transcriber.transcribe(each)[0] for each in given] == found
    assert transcriber.transcribe([]) == []
    (wide,) = transcriber.transcribe(np.zeros((8, 20_000), np.uint8))
    assert wide.is_cut
    with pytest.raises(RequestError, match="times are of words in sounds"):
        transcriber.transcribe(path, times=True)
    with pytest.raises(RequestError, match="beam = 0 must be"):
        transcriber.transcribe(path, beam=0)
    with pytest.raises(RequestError, match=r"alpha = -1\.0 must be"):
        transcriber.transcribe(path, alpha=-1.0)
    with pytest.raises(DataError, match=r"none\.png: cannot be read"):
        transcriber.transcribe(["none.png"])
    with pytest.raises(ConfigError, match="only its .decode. settings can change"):
        Transcriber.load(trained_reader, overrides=["model.d_model=3"])


def test_a_wider_beam_finds_no_worse_text(trained_reader: Path) -> None:
    generator = np.random.default_rng(4)
    images = [draw_line(text, generator) for text in ("LOT", "TOLL O", "OOT")]
    transcriber = Transcriber.load(trained_reader)
    greedy, wide = (transcriber.transcribe(images, beam=beam, alpha=0) for beam in (1, 8))
    for one, other in zip(greedy, wide, strict=True):
        assert other.log_prob >= one.log_prob - 1e-5


def test_a_long_sound_is_the_parts_between_its_pauses(
    trained_listener: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, spans = say(
        ["do", "mi", "re", "fa", "re", "do", "do", "mi", "fa", "re"], np.random.default_rng(3)
    )
    transcriber = Transcriber.load(trained_listener, batch_size=1)
    longest = int(transcriber.config.data.longest_seconds * RATE)
    places = long_sounds.cuts(samples.astype(np.float32), longest, RATE)
    assert len(places) >= 2
    assert not any(start < place / RATE < end for place in places for start, end in spans)
    (found,) = transcriber.transcribe((samples, RATE), times=True)
    assert found.num_parts == len(places) + 1
    bounds = [0, *places, len(samples)]
    parts = [(samples[start:end], RATE) for start, end in pairwise(bounds)]
    apart = transcriber.transcribe(parts, times=True)
    assert found.text == " ".join(each.text for each in apart)
    assert found.log_prob == pytest.approx(sum(each.log_prob for each in apart), abs=1e-4)
    expected = [
        (word.word, word.start + start / RATE, word.end + start / RATE)
        for each, start in zip(apart, bounds, strict=False)
        for word in each.words
    ]
    assert [word.word for word in found.words] == found.text.split()
    for timed, (word, start, end) in zip(found.words, expected, strict=True):
        assert timed.word == word
        assert (timed.start, timed.end) == pytest.approx((start, end), abs=0.002)
    monkeypatch.setattr(transcriber_module, "MOST_SECONDS", 1.0)
    with pytest.raises(RequestError, match="the sound: longer than 1 seconds: cut it into files"):
        transcriber.transcribe((samples, RATE))


def test_words_have_the_times_at_which_they_are_said(trained_listener: Path) -> None:
    transcriber = Transcriber.load(trained_listener)
    config, encoder = transcriber.config.data, transcriber.encoder
    assert isinstance(encoder, AudioEncoder)
    words, off = ["fa", "do", "mi"], []
    for seed in range(4):
        samples, spans = say(words, np.random.default_rng(seed))
        (piece,) = long_sounds.pieces_of((samples, RATE), encoder, config, 60.0)
        ids = transcriber.targets.encode(" ".join(words))
        found = timed_words(transcriber.model, piece, ids, transcriber.targets, config)
        assert [each.word for each in found] == words
        assert all(0 <= each.start < each.end <= len(samples) / RATE for each in found)
        (encoded,) = transcriber.transcribe([piece.encoded], times=True)
        assert all(0 <= each.start < each.end for each in encoded.words)
        off += [
            abs(each.start + each.end - start - end) / 2
            for each, (start, end) in zip(found, spans, strict=True)
        ]
    assert np.mean(off) < 0.2


def test_subwords_are_learned_and_another_run_starts_from_them(tmp_path: Path) -> None:
    files = write_spoken(tmp_path, count=60)
    changes = ("data.targets=subwords", "data.vocab_size=280")
    first = tmp_path / "first"
    train(small_sound_config(*changes), first, text=files)
    transcriber = Transcriber.load(first)
    assert len(transcriber.targets) > 260
    more = write_spoken(tmp_path, count=40, seed=2)
    said: list[str] = []
    train(
        small_sound_config(*changes, "train.max_steps=6"),
        tmp_path / "second",
        text=more,
        init_from=first,
        on_event=lambda event: said.append(str(event)),
    )
    assert any("starting from the weights of" in line for line in said)
    assert Transcriber.load(tmp_path / "second").targets == transcriber.targets
    with pytest.raises(ConfigError, match=r"data\.num_mels = 20 must be 16, as in the run to"):
        train(
            small_sound_config(*changes, "data.num_mels=20"),
            tmp_path / "third",
            text=more,
            init_from=first,
        )


def test_data_prepared_in_another_way_is_refused(tmp_path: Path, headwise: Headwise) -> None:
    (table,) = write_lines(tmp_path, count=60).paths
    out, run = str(tmp_path / "out"), str(tmp_path / "run")
    options = ("read-tiny", *settings(LINE_SETTINGS))
    code, output, errors = headwise(
        "prepare", *options, "--table", str(table), *IMAGE_COLUMNS, "--out", out
    )
    assert code == 0, errors
    assert "images to train on" in output + errors
    code, _, errors = headwise("train", *options, "--data", out, "--run", run)
    assert code == 0, errors
    other = (*options, "--set", "data.longest_width=90")
    code, _, errors = headwise("train", *other, "--data", out, "--run", f"{run}-2")
    assert (code, "not prepared with data.longest_width = 90" in errors) == (2, True), errors


def test_images_by_the_commands(
    tmp_path: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    (table,) = write_lines(tmp_path, count=60).paths
    with table.open("a") as file:
        file.write("lines-1/1.png,\n")
    run = str(tmp_path / "run")
    options = ("--table", str(table), *IMAGE_COLUMNS)
    code, output, errors = headwise("train", *options, "--run", run, *settings(LINE_SETTINGS))
    assert code == 0, errors
    said = "training read-tiny: guessed from --image-column: transcription of images"
    assert errors.splitlines()[0] == said
    assert "left out 1 of 61 images: an empty text (" in errors
    assert "vocabulary 8 (characters)" in errors
    assert "character accuracy" in output
    code, output, errors = headwise("doctor", "read-tiny", *options, *settings(LINE_SETTINGS))
    assert (code, "60 images" in output) == (0, False), errors

    paths = [str(tmp_path / "lines-1" / f"{number}.png") for number in (5, 3, 4)]
    code, output, errors = headwise("transcribe", run, *paths)
    assert code == 0, errors
    lines = output.splitlines()
    assert len(lines) == 3
    (tmp_path / "paths.txt").write_text("".join(f"{path}\n" for path in paths))
    with (tmp_path / "paths.txt").open() as listed:
        monkeypatch.setattr(sys, "stdin", listed)
        code, output, errors = headwise("transcribe", run, "--json", "--beam=2", "--alpha=0.5")
    assert code == 0, errors
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["file"] for row in rows] == paths
    assert {"text", "log_prob", "score", "is_cut", "parts", "words"} < set(rows[0])
    (tmp_path / "wide.png").write_bytes(png(np.zeros((8, 20_000, 1), np.uint8)))
    code, output, errors = headwise("transcribe", run, str(tmp_path / "wide.png"))
    assert (code, len(output.splitlines())) == (0, 1)
    assert "1 of the images was cut off after 80 pixels (data.longest_width)" in errors

    code, output, errors = headwise("evaluate", run, *options)
    assert code == 0, errors
    assert "word error rate" in output
    assert "worst, with the reference above the output:" in output
    assert f"{table}:" in output
    code, output, errors = headwise("evaluate", run, run, *options)
    assert (code, output.splitlines()[0].split()[:2]) == (0, ["run", "exactly"]), errors
    code, output, errors = headwise("evaluate", run, *options, "--json")
    (values,) = json.loads(output)["runs"]
    assert (code, values["examples"], len(values["worst"])) == (0, 60, 5), errors
    assert 0 <= values["exact"] <= 1 < values["characters"]["reference"]

    page = tmp_path / "report.html"
    code, _, errors = headwise("report", run, *options, "--out", str(page))
    assert code == 0, errors
    assert page.read_text().count('class="sample" src="data:image/png;base64,') >= 3
    assert "Character error rate" in page.read_text()

    for arguments, message in (
        (("transcribe", run, str(tmp_path / "missing.png")), "missing.png: cannot be read"),
        (("transcribe", run, "--times", paths[0]), "times are of words in sounds"),
        (("classify", run, paths[0]), "use `headwise transcribe"),
        (("evaluate", run), "give what to evaluate on: transcribed images"),
        (("evaluate", run, "--table", str(table), "--image-column", "none", *IMAGE_COLUMNS[2:]),
         "has no column 'none': there is 'path', 'text'"),
        (("train", "read-tiny", "--table", str(table), "--run", f"{run}-3"), "--image-column"),
    ):  # fmt: skip
        code, _, errors = headwise(*arguments)
        assert (code, message in errors.splitlines()[-1]) == (2, True), errors


def test_sounds_by_the_commands(tmp_path: Path, headwise: Headwise) -> None:
    (table,) = write_spoken(tmp_path, count=60).paths
    run = str(tmp_path / "run")
    options = ("--table", str(table), *AUDIO_COLUMNS)
    code, _, errors = headwise("train", *options, "--run", run, *settings(SOUND_SETTINGS))
    assert code == 0, errors
    assert errors.splitlines()[0].endswith("guessed from --audio-column: transcription of audio")
    code, output, errors = headwise("evaluate", run, *options)
    assert (code, "60 examples" in output) == (0, True), errors
    page = tmp_path / "report.html"
    code, _, errors = headwise("report", run, "--out", str(page))
    assert code == 0, errors
    assert "Spectrogram" in page.read_text()


def test_times_by_the_command(trained_listener: Path, tmp_path: Path, headwise: Headwise) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, say(["fa", "do"], np.random.default_rng(5))[0], RATE)
    code, output, errors = headwise("transcribe", str(trained_listener), "--times", str(path))
    assert code == 0, errors
    (line,) = output.splitlines()
    fields = [field.split(" ") for field in line.split("\t")]
    (expected,) = Transcriber.load(trained_listener).transcribe(path)
    assert [word for *_, word in fields] == expected.text.split()
    times = [float(each) for *pair, _ in fields for each in pair]
    assert all(0 <= each <= 2 for each in times)
    assert all(start < end for start, end in zip(times[::2], times[1::2], strict=True))


def test_files_are_served(trained_reader: Path, trained_listener: Path, tmp_path: Path) -> None:
    runs = [tmp_path / "lines", tmp_path / "sounds"]
    for run, made in zip(runs, (trained_reader, trained_listener), strict=True):
        shutil.copytree(made, run)
    pixels = draw_line("LOT", np.random.default_rng(1))
    content = png(pixels[:, :, None])
    sound = io.BytesIO()
    soundfile.write(sound, say(["fa", "do"], np.random.default_rng(5))[0], RATE, format="WAV")
    long = io.BytesIO()
    soundfile.write(long, np.zeros(61 * RATE), RATE, format="WAV")
    model, other = ("model", b"lines", False), ("model", b"sounds", False)
    with running(load_served(runs), limits=Limits(upload_bytes=2_000_000)) as server:

        def post(*parts: tuple[str, bytes, bool]) -> tuple[int, Any]:
            return post_form(server, "/v1/transcribe", *parts)

        status, answer = post(model, ("f", content, True), ("g", content, True))
        (expected,) = Transcriber.load(trained_reader).transcribe(pixels)
        assert status == 200, answer
        assert [each["text"] for each in answer["files"]] == [expected.text] * 2
        assert answer["text"] == expected.text
        assert answer["files"][0]["log_prob"] == pytest.approx(expected.log_prob, abs=1e-4)
        assert answer["files"][0]["picture"] is None

        asked = (("picture", b"true", False), ("times", b"true", False))
        status, answer = post(other, *asked, ("f", sound.getvalue(), True))
        assert status == 200, answer
        (found,) = answer["files"]
        (spoken,) = Transcriber.load(trained_listener).transcribe(sound.getvalue(), times=True)
        assert found["text"] == spoken.text
        assert [each["word"] for each in found["words"]] == spoken.text.split()
        picture = found["picture"]
        assert (picture["kind"], picture["rows"]) == ("sound", 1)
        assert "".join(each["text"] for each in picture["tokens"]) == spoken.text
        for token in picture["tokens"]:
            assert len(token["attention"]) == picture["columns"]
            assert 0 < sum(token["attention"]) < 1.01

        for parts, message in (
            ([model], "send from 1 to 16 images"),
            ([model, ("f", b"no image", True)], "the image: "),
            ([other, ("f", content, True)], "the sound: "),
            ([other, ("f", long.getvalue(), True)], "the sound: longer than 60 seconds"),
            ([model, asked[1], ("f", content, True)], "times are of words in sounds"),
            ([model, ("times", b"x", False), ("f", content, True)], "times: "),
        ):
            status, answer = post(*parts)
            assert (status, message in answer["error"]) == (400, True), answer
        status, answer, _ = server.ask("GET", "/v1/tasks")
        assert {each["panel"]["kind"] for each in answer["models"]} == {"transcriptions"}


def test_attention_is_shown_over_the_image(
    trained_reader: Path, tmp_path: Path, headwise: Headwise
) -> None:
    pixels = draw_line("LOT", np.random.default_rng(1))
    path, page = tmp_path / "a.png", tmp_path / "attention.html"
    path.write_bytes(png(pixels[:, :, None]))
    run = str(trained_reader)
    code, _, errors = headwise("attention", run, str(path), "--target", "LOT", "--out", str(page))
    assert code == 0, errors
    pair = Transcriber.load(trained_reader).trace(str(path), "LOT", most_tokens=100)
    assert (pair.target, pair.target_tokens) == ("LOT", ("L", "O", "T"))
    strips = -(-pixels.shape[1] // 2)
    assert len(pair.source_tokens) == strips + 1
    assert pair.trace.decoder.cross_attention[0].shape[2:] == (4, strips + 1)
    assert '"columns":' + str(strips) in page.read_text().replace(" ", "")
    for target, message in (("", "at least 1 and at most 100"), ("L" * 101, "at most 100 tokens")):
        code, _, errors = headwise(
            "attention", run, str(path), "--target", target, "--out", str(page)
        )
        assert (code, message in errors.splitlines()[-1]) == (2, True), errors
