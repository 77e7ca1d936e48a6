"""The demo's spoken digits: who says what, what is made of it, and who can speak at all."""

import ctypes
import io
import json
import platform
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from headwise.config import LabelsConfig
from headwise.data import LineReport
from headwise.errors import ConfigError, DownloadError
from headwise.recipes import load_recipe
from headwise.tasks.classification.files import read_examples
from headwise.tasks.classification.kinds import kind_of
from headwise.tasks.transcription.files import read_examples as read_transcribed
from headwise.tasks.vectors.audio import AUDIO
from headwise.workflows import demo_listening, demo_speech, synthetic_speech
from headwise.workflows.demo_speech import DEMO, Clip, clips
from headwise.workflows.synthetic_speech import (
    ACCENTS,
    VARIANTS,
    Command,
    Library,
    Saying,
    speakers,
)

SEVEN = Saying("seven", "en-US", "f3", 150, 40, 60)
THREE = Saying("three", "en", "m1", 190, 55, 30)


def tone(saying: Saying, rate: int) -> NDArray[np.float32]:
    """Return a tone of 0.3 s, with silence around it."""
    hertz = 200 + 10 * saying.pitch + 3 * len(saying.text)
    sound = np.sin(2 * np.pi * hertz * np.arange(int(0.3 * rate)) / rate)
    return np.pad(0.5 * sound, int(0.1 * rate)).astype(np.float32)


@dataclass
class Tones:
    """Speak in tones."""

    identity: str = "tones"
    fault: Exception | None = None
    made: int = 0
    announcement = "Tones."

    def spoken(
        self, sayings: Sequence[Saying], directory: Path, *, rate: int
    ) -> Iterator[NDArray[np.float32]]:
        (directory / "library").write_bytes(b"of no use afterwards")
        for number, saying in enumerate(sayings):
            if self.fault and number == 3:
                raise self.fault
            self.made += 1
            yield tone(saying, rate)


@pytest.fixture
def tones(monkeypatch: pytest.MonkeyPatch) -> Tones:
    """Speak in tones, with few voices."""
    monkeypatch.setattr(demo_speech, "VARIANTS", VARIANTS[:9])
    monkeypatch.setattr(demo_speech, "ACCENTS", ACCENTS[:2])
    found = Tones()
    monkeypatch.setattr(demo_speech, "speakers", lambda: [found])
    return found


def get(directory: Path, said: list[str] | None = None) -> Path:
    return DEMO.get(directory, (said if said is not None else []).append)


def test_each_voice_says_each_digit_once() -> None:
    wanted = clips()
    assert len({clip.path for clip in wanted}) == len(wanted) == 3_500
    for clip in wanted:
        _, digit, name = clip.path.split("/")
        assert digit == clip.saying.text
        assert name == f"{clip.saying.variant}_{clip.saying.accent}.wav"
        assert 80 <= clip.saying.rate <= 450
        assert 0 <= clip.saying.pitch < 100
        assert 0 <= clip.saying.range < 100
    assert len({clip.saying[3:] for clip in wanted}) > 3_000


def test_the_test_is_on_speakers_that_training_never_hears() -> None:
    variants: dict[str, set[str]] = {"train": set(), "test": set()}
    counts = {"train": 0, "test": 0}
    for clip in clips():
        part = clip.path.partition("/")[0]
        variants[part].add(clip.saying.variant)
        counts[part] += 1
    assert variants["train"].isdisjoint(variants["test"])
    # Another test needs another version, as data that was made before stays.
    assert demo_speech._VERSION == 1
    assert variants["test"] == {"Michael", "aunty", "david", "grandpa", "m3", "paul", "rob"}
    assert counts == {"train": 3_010, "test": 490}


def test_a_speaker_says_the_same_each_time_beside_other_speakers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = clips()
    assert clips() == before
    monkeypatch.setattr(demo_speech, "VARIANTS", VARIANTS[::-2])
    assert {clip.saying for clip in clips()} < {clip.saying for clip in before}


def test_each_voice_says_strings_of_digits() -> None:
    parts = {part: demo_listening.strings(part) for part in ("train", "test")}
    assert {part: len(found) for part, found in parts.items()} == {"train": 2_408, "test": 392}
    heard = {part: {each.clip.saying.variant for each in found} for part, found in parts.items()}
    assert heard["test"] == set(demo_speech.heldout_variants())
    assert heard["train"].isdisjoint(heard["test"])
    for part, found in parts.items():
        assert demo_listening.strings(part) == found
        assert len({each.clip.path for each in found}) == len(found)
        for each in found:
            assert each.clip.saying.text == each.text
            assert 2 <= len(each.text.split()) <= 4
            assert set(each.text.split()) <= set(demo_speech.DIGITS)


def test_a_table_names_the_sounds_of_strings(
    tones: Tones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_listening, "VARIANTS", VARIANTS[:9])
    monkeypatch.setattr(demo_listening, "ACCENTS", ACCENTS[:2])
    said: list[str] = []
    folder = demo_listening.DEMO.get(tmp_path, said.append)
    assert "Making 144 strings of 2 to 4 spoken digits, 112 of them by speakers" in said[1]
    for part, count in (("train", 32), ("test", 112)):
        files = demo_listening.DEMO.files(folder / f"{part}.csv")
        data: Any = load_recipe(demo_listening.DEMO.recipe).data
        report = LineReport()
        found = read_transcribed(files, data, AUDIO, lenient=False, report=report)
        texts = [each.text for each in found]
        assert texts == [each.text for each in demo_listening.strings(part)]
        assert len(texts) == count
    assert demo_listening.DEMO.get(tmp_path, said.append) == folder
    assert len(said) == 2
    assert Path(demo_listening.DEMO.example(folder / "test.csv")).is_file()


def test_a_folder_for_each_class_holds_sounds_of_one_form(tones: Tones, tmp_path: Path) -> None:
    said: list[str] = []
    folder = get(tmp_path, said)
    assert said[0] == "Tones."
    assert "180 clips of spoken digits with 18 synthetic voices: 9 speakers" in said[1]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert sorted(path.name for path in folder.iterdir()) == ["test", "train"]
    for part, count in (("train", 2 * 2), ("test", 7 * 2)):
        classes = sorted((folder / part).iterdir())
        assert [path.name for path in classes] == sorted(demo_speech.DIGITS)
        for path in classes:
            assert len(list(path.iterdir())) == count
    for path in folder.rglob("*.wav"):
        info = soundfile.info(path)
        assert (info.samplerate, info.channels, info.subtype) == (8_000, 1, "PCM_16")
        assert 0.3 < info.duration < 0.3 + 2 * 0.8 + 0.02
        samples, _ = soundfile.read(path)
        assert 0.09 < np.abs(samples).max() < 0.9


def test_a_classifier_can_read_them(tones: Tones, tmp_path: Path) -> None:
    config = load_recipe(DEMO.recipe)
    assert isinstance(config.data, LabelsConfig)
    report = LineReport()
    files = DEMO.files(get(tmp_path) / DEMO.test)
    examples = list(
        read_examples(files, config.data, kind_of(config), lenient=False, report=report)
    )
    assert report.kept == len(examples) == 140
    assert {label for each in examples for label in each.labels} == set(demo_speech.DIGITS)


def test_sounds_are_made_once_and_alike_each_time(tones: Tones, tmp_path: Path) -> None:
    first = get(tmp_path / "a")
    said: list[str] = []
    assert get(tmp_path / "a", said) == first
    assert (tones.made, said) == (180, [])
    second = get(tmp_path / "b")
    assert second.name == first.name
    for path in first.rglob("*.wav"):
        assert (second / path.relative_to(first)).read_bytes() == path.read_bytes()
    tones.identity = "other tones"
    assert get(tmp_path / "a") != first


def test_silence_is_cut_off_and_noise_put_in_its_place() -> None:
    clip = Clip(SEVEN, "test/seven/f3_en-US.wav")
    sound = tone(SEVEN, 8_000)
    voice = demo_speech._trimmed(sound, clip)
    assert len(voice) == 2_400
    np.testing.assert_array_equal(voice, sound[800:3_200])
    levels = []
    for seed in range(20):
        recorded = demo_speech._recorded(voice, np.random.default_rng(seed))
        edge = int(0.05 * 8_000)
        noise = np.concatenate([recorded[:edge], recorded[-edge:]])
        quiet, loud = np.sqrt([(noise**2).mean(), (recorded**2).mean()])
        assert 0 < quiet < loud
        levels.append(loud)
    assert max(levels) > 3 * min(levels)
    with pytest.raises(DownloadError, match="returned silence for test/seven/f3_en-US.wav"):
        demo_speech._trimmed(np.zeros(999, np.float32), clip)


def test_nothing_is_left_of_a_speaker_that_fails(tones: Tones, tmp_path: Path) -> None:
    tones.fault = DownloadError("no network")
    with pytest.raises(DownloadError, match=r"no network \(or install espeak-ng 1.51 or newer"):
        get(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_any_speaker_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="install espeak-ng 1.51 or newer with the system's") as e:
        get(tmp_path)
    assert "\n" not in str(e.value)
    assert list(tmp_path.iterdir()) == []


def test_without_soundfile_nothing_is_downloaded(
    tones: Tones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.data.sounds.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="headwise\\[audio\\]"):
        get(tmp_path)
    assert tones.made == 0


def test_another_speaker_takes_over_and_stays(
    tones: Tones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Tones(identity="broken", fault=DownloadError("no network"))
    monkeypatch.setattr(demo_speech, "speakers", lambda: [broken, tones])
    said: list[str] = []
    folder = get(tmp_path, said)
    assert "no network" in said
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    made = broken.made
    assert get(tmp_path) == folder
    assert broken.made == made


# The library in the wheel.


def write_wheel(directory: Path, members: dict[str, bytes]) -> tuple[Path, Library]:
    path = directory / "espeakng_loader-0.2.4-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path, Library(sha256=sha256(path.read_bytes()).hexdigest(), file="libespeak-ng.so")


def wheel_members() -> dict[str, bytes]:
    data = "espeakng_loader/espeak-ng-data"
    names = [f"{data}/{name}" for name in synthetic_speech._DATA_FILES]
    names += [f"{data}/lang/gmw/{name}" for name in ACCENTS]
    names += [f"{data}/voices/!v/{name}" for name in VARIANTS]
    return {name: name.encode() for name in ("espeakng_loader/libespeak-ng.so", *names)}


def test_only_what_is_named_here_leaves_the_wheel(tmp_path: Path) -> None:
    members = wheel_members()
    strange = ("../outside", "/outside", "espeakng_loader/../../outside", "espeakng_loader/x.so")
    wheel, library = write_wheel(tmp_path, members | dict.fromkeys(strange, b"x"))
    into = tmp_path / "a" / "b"
    into.mkdir(parents=True)
    assert library.unpack(wheel, into) == into / "libespeak-ng.so"
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != wheel]
    assert {f"espeakng_loader/{path.relative_to(into)}": path.read_bytes() for path in files} == (
        members
    )


def test_another_wheel_or_one_that_lacks_a_file_is_refused(tmp_path: Path) -> None:
    members = wheel_members()
    del members["espeakng_loader/espeak-ng-data/voices/!v/zac"]
    wheel, library = write_wheel(tmp_path, members)
    with pytest.raises(DownloadError, match="has no file espeakng_loader/espeak-ng-data/voices/!v"):
        library.unpack(wheel, tmp_path / "b")
    with pytest.raises(DownloadError, match="is damaged, or another than expected"):
        replace(library, sha256="0" * 64).unpack(wheel, tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Library]:
    """Return a function that puts a shell's script in the place of the process that speaks."""
    wheel, library = write_wheel(tmp_path, wheel_members())
    monkeypatch.setattr(synthetic_speech, "download", lambda *_: wheel)

    def of(script: str) -> Library:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        return library

    return of


def test_a_process_of_its_own_is_asked_and_answers_with_samples(
    child: Callable[[str], Library], tmp_path: Path
) -> None:
    samples = [np.full(count, 1 << 14, np.int16) for count in (16_000, 800)]
    answers = tmp_path / "answers"
    answers.write_bytes(
        b"".join(struct.pack("=iI", 16_000, 2 * len(s)) + bytes(s) for s in samples)
    )
    into = tmp_path / "into"
    into.mkdir()
    library = child(f'echo "$@" > {tmp_path}/arguments; cat > {tmp_path}/asked; cat {answers}')
    sounds = list(library.spoken([SEVEN, THREE], into, rate=8_000))
    assert [len(sound) for sound in sounds] == [8_000, 400]
    assert sounds[0][4_000] == pytest.approx(0.5, abs=1e-3)
    assert json.loads((tmp_path / "asked").read_text()) == {
        "library": str(into / "libespeak-ng.so"),
        "data": str(into),
        "sayings": [
            ["seven", "gmw/en-US+f3", 150, 40, 60],
            ["three", "gmw/en+m1", 190, 55, 30],
        ],
    }
    assert "synthetic_speech import main; main()" in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("kill -SEGV $$", "it ended with -11"),
        ("echo noise >&2; echo 'OSError: no such thing' >&2; exit 1", "OSError: no such thing"),
        (r"printf '\200\076\000\000\004\000\000\000abc'", "it ended with 0"),  # 4 bytes, and 3.
        (r"printf '\200\076\000'", "it ended with 0"),
    ],
)
def test_a_process_that_crashes_is_a_one_line_error(
    child: Callable[[str], Library], tmp_path: Path, script: str, complaint: str
) -> None:
    with pytest.raises(DownloadError, match=f"does not run here: {complaint}") as caught:
        list(child(script).spoken([SEVEN], tmp_path, rate=8_000))
    assert "\n" not in str(caught.value)


class FakeLibrary:
    """Answer as espeak-ng's library does: with the settings, as samples."""

    def __init__(self, rate: int = 22_050, unknown: bytes = b"") -> None:
        self.rate = rate
        self.unknown = unknown
        self.data = b""
        self.settings: dict[int, int] = {}
        self.voice = b""
        self.callback: Any = None
        self.espeak_Synth = self.Synth()
        self.espeak_Synth.library = self

    class Synth:
        library: "FakeLibrary"
        argtypes: tuple[Any, ...] = ()

        def __call__(self, text: bytes, size: int, *_: object) -> int:
            assert size == len(text) + 1
            settings = self.library.settings
            for part in (settings[1], settings[3]), (settings[4], settings[2]):
                samples: ctypes.Array[ctypes.c_short] = (ctypes.c_short * 2)(*part)
                assert self.library.callback(ctypes.cast(samples, ctypes.c_void_p), 2, None) == 0
            assert self.library.callback(None, 0, None) == 0
            return 0

    def espeak_Initialize(self, output: int, _: int, data: bytes, options: int) -> int:  # noqa: N802
        assert (output, options) == (2, 0x8000)
        self.data = data
        return self.rate

    def espeak_ng_SetRandSeed(self, _: object) -> int:  # noqa: N802
        return 0

    def espeak_SetSynthCallback(self, callback: Any) -> None:  # noqa: N802
        self.callback = callback

    def espeak_SetVoiceByName(self, name: bytes) -> int:  # noqa: N802
        self.voice = name
        return 2 if name == self.unknown else 0

    def espeak_SetParameter(self, parameter: int, value: int, relative: int) -> int:  # noqa: N802
        assert relative == 0
        self.settings[parameter] = value
        return 0


def speak(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    out = io.BytesIO()
    sayings = [[each.text, each.voice, *each[3:]] for each in (SEVEN, THREE)]
    synthetic_speech._speak("lib", "data", sayings, out)
    return out.getvalue()


def test_the_library_is_told_the_voice_and_how_to_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary()
    stream = io.BytesIO(speak(library, monkeypatch))
    volume = synthetic_speech._VOLUME
    for saying in (SEVEN, THREE):
        clip = synthetic_speech._read_clip(stream)
        assert clip is not None
        assert clip[0].tolist() == [saying.rate, saying.pitch, saying.range, volume]
        assert clip[1] == 22_050
    assert synthetic_speech._read_clip(stream) is None
    assert (library.data, library.voice) == (b"data", b"gmw/en+m1")


@pytest.mark.parametrize(
    ("library", "complaint"),
    [
        (FakeLibrary(rate=-1), "its data cannot be read"),
        (FakeLibrary(unknown=b"gmw/en+m1"), r"cannot say 'three' in the voice gmw/en\+m1"),
    ],
)
def test_a_library_that_cannot_speak_says_why(
    library: FakeLibrary, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=complaint):
        speak(library, monkeypatch)


# The command.


def write_command(directory: Path, variants: Sequence[str], speech: str = "cat wav") -> None:
    """Write an espeak-ng that keeps what it is asked in the file `asked`."""
    listing = "\n".join(f" 5  variant  --/M  Someone  !v/{name} " for name in variants)
    path = directory / "espeak-ng"
    path.write_text(
        f"""#!/bin/sh
cd {directory}
case "$1" in
--version) echo "eSpeak NG text-to-speech: 1.51" ;;
--voices=variant) echo "{listing}" ;;
*) echo "$@" >> asked; {speech} ;;
esac
"""
    )
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that comes first on the PATH, on a platform that no wheel is known for."""
    monkeypatch.setattr(sys, "platform", "plan9")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_the_command_speaks_into_a_pipe(path: Path) -> None:
    write_command(path, VARIANTS)
    wav = io.BytesIO()
    soundfile.write(wav, np.full(22_050, 0.25), 22_050, format="WAV", subtype="PCM_16")
    content = bytearray(wav.getvalue())
    content[40:44] = struct.pack("<I", 0x7FFFF000)  # espeak-ng does not know the length yet.
    (path / "wav").write_bytes(content)
    (command,) = speakers()
    assert isinstance(command, Command)
    assert "1.51" in command.identity
    (sound,) = command.spoken([SEVEN], path, rate=8_000)
    assert len(sound) == 8_000
    assert sound[4_000] == pytest.approx(0.25, abs=1e-3)
    assert (path / "asked").read_text() == (
        "-v gmw/en-US+f3 -s 150 -p 40 -a 30 -z --stdout seven\n"
    )


def test_a_command_that_fails_is_a_one_line_error(path: Path) -> None:
    write_command(path, VARIANTS, speech="echo x >&2; echo 'no such voice' >&2; exit 1")
    (command,) = speakers()
    with pytest.raises(DownloadError, match="espeak-ng failed: no such voice$"):
        list(command.spoken([SEVEN], path, rate=8_000))


def test_a_command_that_lacks_a_voice_or_cannot_run_does_not_count(path: Path) -> None:
    write_command(path, VARIANTS[1:])
    assert speakers() == []
    (path / "espeak-ng").write_text("#!/bin/sh\nexit 127\n")
    assert speakers() == []
    (path / "espeak-ng").write_text("#!/no/such/shell\n")
    assert speakers() == []


def test_the_wheel_comes_before_the_command(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_command(path, VARIANTS)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    first, second = speakers()
    assert isinstance(first, Library)
    assert first.sha256.startswith("08721baf27d1")
    assert isinstance(second, Command)


@pytest.mark.slow
def test_espeak_speaks_alike_each_time_and_each_voice_otherwise(tmp_path: Path) -> None:
    found = [speaker for speaker in speakers() if isinstance(speaker, Library)]
    if not found:
        pytest.skip("no wheel of espeak-ng is known for this platform")
    wanted = [clip.saying for clip in clips()[::9]]
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        try:
            made.append(list(found[0].spoken(wanted, tmp_path / name, rate=8_000)))
        except DownloadError as error:
            pytest.skip(str(error))
    assert len({sound.tobytes() for sound in made[0]}) == len(wanted)
    for sound, again in zip(*made, strict=True):
        np.testing.assert_array_equal(sound, again)
        voice = demo_speech._trimmed(sound, Clip(SEVEN, ""))
        assert 0.2 < len(voice) / 8_000 < 1.5
