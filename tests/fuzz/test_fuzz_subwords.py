"""SentencePiece models, loaded in a process of their own."""

import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from headwise.config import DataConfig
from headwise.data.subwords import Subwords
from tests.fuzz.conftest import Fuzz
from tests.fuzz.mutations import mutated
from tests.fuzz.protobuf import mutated_message, parsed, serialised
from tests.small_runs import WORDS

_MOST_SECONDS = 60
"""Against hangs only."""


class Child:
    """A process that loads models, started again after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def load(self, model: bytes) -> None:
        """Load a model there; it must be loaded or refused."""
        process = self._process = self._process or _started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(struct.pack("<I", len(model)) + model)
        process.stdin.flush()
        is_there, _, _ = select.select([process.stdout], [], [], _MOST_SECONDS)
        answer = process.stdout.readline().decode().strip() if is_there else "hung"
        if not answer:
            answer = f"crashed with exit code {process.wait(_MOST_SECONDS)}"
        if answer in ("loaded", "refused"):
            return
        self.close()
        raise AssertionError(answer)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _started() -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("subwords_child.py")
    return subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.close()


Kind = Literal["bpe", "unigram"]
Normalization = Literal["identity", "nfkc"]


def learned(kind: Kind, normalization: Normalization) -> bytes:
    data = DataConfig(vocab_size=290, subwords=kind, normalization=normalization)
    return Subwords.learn([" ".join(WORDS)] * 50, data).model


@pytest.mark.parametrize(
    ("kind", "normalization"), [("bpe", "identity"), ("unigram", "identity"), ("bpe", "nfkc")]
)
def test_models(kind: Kind, normalization: Normalization, child: Child, fuzz: Fuzz) -> None:
    model = learned(kind, normalization)
    assert serialised(parsed(model)) == model
    child.load(model)
    fuzz(mutated_message(model) | mutated(model), child.load)
