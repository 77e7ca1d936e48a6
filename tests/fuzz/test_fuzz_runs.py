"""Files of a run directory: checkpoints with their tensors, metrics, origin and environment."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from headwise.config import Config
from headwise.runs.checkpoint import (
    MANIFEST,
    OPTIMIZER,
    STATE,
    WEIGHTS,
    read_checkpoint,
    read_manifest,
    read_state,
    read_weights,
    write_checkpoint,
)
from headwise.runs.checkpoints import last_good
from headwise.runs.directory import RunDirectory
from headwise.runs.environment import read_sessions, record_session
from headwise.runs.metrics import MetricsFile, read_metrics
from headwise.runs.state import TrainingState
from headwise.runs.tensors import read_tensors
from tests.fuzz.conftest import Fuzz
from tests.fuzz.contract import result_or_refusal
from tests.fuzz.mutations import Draw, mutated, mutated_json

TENSORS = {
    "a.weight": torch.arange(15.0).reshape(3, 5),
    "b": torch.arange(7.0).double(),
    "c.step": torch.tensor(2.0),
    "empty": torch.zeros(0, 4),
    "half": torch.ones(2, 2).bfloat16(),
}

METRICS = [
    {"kind": "train", "step": 3, "epoch": 0.5, "minutes": 0.1, "loss": 2.5, "rate": 1e-3},
    {"kind": "valid", "step": 4, "epoch": 1.0, "minutes": 0.2, "loss": 2.25, "perplexity": 9.5},
]

SESSION = {"headwise": "1", "torch": "2", "numpy": "2", "threads": 1, "processes": 1}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "run" / "checkpoints" / "step-00000007"
    directory.parent.mkdir(parents=True)
    (tmp_path / "run" / "config.toml").write_text(Config().to_toml())
    write_checkpoint(directory, TENSORS, TENSORS, TrainingState(step=7, tokens=11, minutes=0.5))
    return directory


def canonical(body: object) -> bytes:
    return json.dumps(body, indent=1, sort_keys=True).encode() + b"\n"


def sealed(body: dict[str, Any]) -> bytes:
    """A manifest whose own digest is right, so that reading goes on to what it says."""
    return canonical({**body, "sha256": hashlib.sha256(canonical(body)).hexdigest()})


def sealed_if_possible(content: bytes) -> bytes:
    try:
        return sealed(json.loads(content))
    except (ValueError, TypeError, RecursionError):
        return content


def seal_file(directory: Path, name: str) -> None:
    """Make the manifest agree with a file that was changed."""
    body = json.loads((directory / MANIFEST).read_bytes())
    del body["sha256"]
    body["files"][name] = hashlib.sha256((directory / name).read_bytes()).hexdigest()
    (directory / MANIFEST).write_bytes(sealed(body))


def read_everything(directory: Path) -> None:
    result_or_refusal(read_manifest, directory)
    result_or_refusal(read_state, directory)
    result_or_refusal(read_checkpoint, directory)
    result_or_refusal(last_good, RunDirectory(directory.parents[1]), set_aside=False)


def test_checkpoint_manifests(fuzz: Fuzz, checkpoint: Path) -> None:
    path = checkpoint / MANIFEST
    content = path.read_bytes()
    body = json.loads(content)
    del body["sha256"]

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        read_everything(checkpoint)

    fuzz(
        mutated_json(body).map(sealed_if_possible)
        | mutated_json(json.loads(content))
        | mutated(content),
        read,
    )


def test_training_states(fuzz: Fuzz, checkpoint: Path) -> None:
    path = checkpoint / STATE
    content = path.read_bytes()

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        seal_file(checkpoint, STATE)
        read_everything(checkpoint)

    fuzz(mutated_json(json.loads(content)) | mutated(content), read)


@st.composite
def safetensors_files(draw: Draw, valid: bytes) -> bytes:
    """A file with another header, whose length is mostly right, or other bytes."""
    (length,) = struct.unpack("<Q", valid[:8])
    header, content = valid[8 : 8 + length], valid[8 + length :]
    changed: bytes = draw(mutated_json(json.loads(header)) | mutated(header, most=2))
    stated = draw(st.sampled_from([len(changed)] * 4 + [0, 1, length, 2**31, 2**63, 2**64 - 1]))
    rest: bytes = draw(st.just(content) | mutated(content, most=1))
    return struct.pack("<Q", stated) + changed + rest


def test_safetensors_files(fuzz: Fuzz, checkpoint: Path) -> None:
    path = checkpoint / WEIGHTS
    valid = path.read_bytes()

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        check_tensors(result_or_refusal(read_tensors, path))
        seal_file(checkpoint, WEIGHTS)
        check_tensors(result_or_refusal(read_weights, checkpoint))

    fuzz(safetensors_files(valid) | mutated(valid), read)


def check_tensors(tensors: dict[str, torch.Tensor] | None) -> None:
    for tensor in (tensors or {}).values():
        assert tensor.numel() * tensor.element_size() < 10_000, "no larger than the file"
        tensor.clone()


def test_optimizer_files(fuzz: Fuzz, checkpoint: Path) -> None:
    path = checkpoint / OPTIMIZER
    valid = path.read_bytes()

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        seal_file(checkpoint, OPTIMIZER)
        read_everything(checkpoint)

    fuzz(safetensors_files(valid), read, examples=30)


def metrics_lines(valid: dict[str, object]) -> st.SearchStrategy[bytes]:
    return st.just(json.dumps(valid).encode()) | mutated_json(valid)


def test_metrics(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    content = b"".join(json.dumps(line).encode() + b"\n" for line in METRICS)
    lines = st.lists(st.sampled_from(METRICS).flatmap(metrics_lines), min_size=1, max_size=4)

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        result_or_refusal(read_metrics, path)
        file = result_or_refusal(MetricsFile, path, step=3)
        if file is not None:
            file.add({"kind": "train", "step": 5})
            file.close()
            assert read_metrics(path)[-1]["step"] == 5, "what was taken over can be read again"

    fuzz(lines.map(lambda lines: b"\n".join(lines) + b"\n") | mutated(content), read)


def test_origins(fuzz: Fuzz, checkpoint: Path) -> None:
    run = RunDirectory(checkpoint.parents[1])
    path = run.path / "origin.json"
    valid = {"longest_source": 9, "data": "/data", "text": [["a", "b"]], "init_from": None}

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        result_or_refusal(run.origin)
        longest = result_or_refusal(run.longest_source)
        assert longest is None or longest > 0

    fuzz(mutated_json(valid) | mutated(json.dumps(valid).encode()), read)


def test_environments(fuzz: Fuzz, checkpoint: Path) -> None:
    run = RunDirectory(checkpoint.parents[1])
    session = {**SESSION, "device": "cpu", "cpu": "one", "from_step": 0, "started": "2026"}
    valid = {"sessions": [session, session]}

    def read(changed: bytes) -> None:
        run.environment_file.write_bytes(changed)
        result_or_refusal(read_sessions, run.environment_file)
        result_or_refusal(record_session, run, session, 5)
        assert read_sessions(run.environment_file)[-1]["from_step"] in (0, 5)

    fuzz(mutated_json(valid) | mutated(json.dumps(valid).encode()), read)
