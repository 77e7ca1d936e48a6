import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from headwise.errors import CheckpointError, UnsafeFileError
from headwise.model import Transformer
from headwise.runs.checkpoint import (
    MANIFEST,
    read_checkpoint,
    read_manifest,
    read_state,
    read_weights,
    write_checkpoint,
    write_weights,
)
from headwise.runs.state import TrainingState
from headwise.runs.tensors import write_tensors
from headwise.runs.weights import load_optimizer, load_weights, model_weights, optimizer_tensors

FILES = [MANIFEST, "weights.safetensors", "optimizer.safetensors", "state.json"]


def tensors(seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "b.weight": torch.randn(3, 5, generator=generator),
        "a": torch.randn(7, generator=generator).double(),
        "step": torch.tensor(2.0),
        "empty": torch.zeros(0, 4),
        "half": torch.randn(2, 2, generator=generator).bfloat16(),
    }


def saved(directory: Path) -> Path:
    write_checkpoint(
        directory, tensors(1), tensors(2), TrainingState(step=7, tokens=11, minutes=0.5)
    )
    return directory


def test_a_checkpoint_comes_back_to_the_bit(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(saved(tmp_path / "made"))
    for found, expected in ((checkpoint.weights, tensors(1)), (checkpoint.optimizer, tensors(2))):
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor)
    assert checkpoint.state == TrainingState(step=7, tokens=11, minutes=0.5)


def test_what_the_library_writes_is_what_we_write(tmp_path: Path) -> None:
    """Our writer against the safetensors library, as reader and as writer."""
    write_tensors(tmp_path / "ours", tensors())
    safetensors.torch.save_file(tensors(), tmp_path / "theirs")
    ours = safetensors.torch.load_file(tmp_path / "ours")
    theirs = safetensors.torch.load_file(tmp_path / "theirs")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_views_are_written_as_what_they_show(tmp_path: Path) -> None:
    table = torch.arange(12.0).view(3, 4)
    write_tensors(tmp_path / "file", {"t": table.t(), "s": table[1:, ::2]})
    found = safetensors.torch.load_file(tmp_path / "file")
    assert torch.equal(found["t"], table.t())
    assert torch.equal(found["s"], table[1:, ::2])


def mutate(path: Path, generator: random.Random) -> str:
    """Flip a bit, cut the file short, or lengthen it."""
    content = bytearray(path.read_bytes())
    kind = generator.choice(["flip", "flip", "flip", "cut", "grow"])
    place = generator.randrange(len(content))
    if kind == "flip":
        content[place] ^= 1 << generator.randrange(8)
    elif kind == "cut":
        del content[place:]
    else:
        content += bytes([generator.randrange(256)])
    path.write_bytes(content)
    return f"{kind} at {place}"


def check_mutations(directory: Path, count: int) -> None:
    generator = random.Random(5)
    originals = {name: (directory / name).read_bytes() for name in FILES}
    for _ in range(count):
        name = generator.choice(FILES)
        what = mutate(directory / name, generator)
        with pytest.raises(CheckpointError) as caught:
            read_checkpoint(directory)
        assert str(directory / name) in str(caught.value), what
        (directory / name).write_bytes(originals[name])
    read_checkpoint(directory)


def test_any_damage_is_found_and_the_file_named(tmp_path: Path) -> None:
    check_mutations(saved(tmp_path / "made"), 100)


@pytest.mark.slow
def test_any_of_a_thousand_kinds_of_damage_is_found(tmp_path: Path) -> None:
    check_mutations(saved(tmp_path / "made"), 1000)


class Bomb:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return exec, ("raise SystemExit('a pickle was run')",)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("with_manifest", [False, True])
def test_a_pickle_never_runs(tmp_path: Path, name: str, with_manifest: bool) -> None:
    directory = saved(tmp_path / "made")
    (directory / name).write_bytes(pickle.dumps(Bomb()))
    if with_manifest and name != MANIFEST:  # Even one whose digest has been put right.
        forge_manifest(directory, name)
    with pytest.raises(CheckpointError, match=name):
        read_checkpoint(directory)


def forge_manifest(directory: Path, name: str) -> None:
    import hashlib

    body = json.loads((directory / MANIFEST).read_bytes())
    del body["sha256"]
    body["files"][name] = hashlib.sha256((directory / name).read_bytes()).hexdigest()
    text = json.dumps(body, indent=1, sort_keys=True).encode() + b"\n"
    body["sha256"] = hashlib.sha256(text).hexdigest()
    (directory / MANIFEST).write_bytes(json.dumps(body, indent=1, sort_keys=True).encode() + b"\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in FILES:
        directory = saved(tmp_path / name)
        (directory / name).unlink()
        with pytest.raises(CheckpointError, match=f"{name}: cannot be read: No such file"):
            read_checkpoint(directory)


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    directory = saved(tmp_path / "made")
    text = (directory / MANIFEST).read_text()
    (directory / MANIFEST).write_text(text.replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(CheckpointError, match="format_version is 2.*upgrade Headwise"):
        read_checkpoint(directory)


@pytest.mark.parametrize(
    "change", [{"step": "7"}, {"step": True}, {"extra": 1}, {"step": None}, {"minutes": 1}]
)
def test_a_state_of_the_wrong_form_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    directory = saved(tmp_path / "made")
    state = json.loads((directory / "state.json").read_bytes()) | change
    (directory / "state.json").write_text(json.dumps(state))
    forge_manifest(directory, "state.json")
    with pytest.raises(CheckpointError, match="state.json: not a training state"):
        read_state(directory)


def test_weights_alone_have_notes(tmp_path: Path) -> None:
    write_weights(tmp_path, tensors(), {"steps": [1, 2]})
    assert read_manifest(tmp_path).notes == {"steps": [1, 2]}
    assert torch.equal(read_weights(tmp_path)["a"], tensors()["a"])
    with pytest.raises(CheckpointError, match="has no state.json"):
        read_state(tmp_path)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """In a process whose files may not grow beyond 4 KiB."""
    code = f"""
import resource, torch
from pathlib import Path
from headwise.runs.checkpoint import write_checkpoint
from headwise.runs.state import TrainingState
big = {{"w": torch.zeros(5000)}}
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_checkpoint(Path({str(tmp_path / "made")!r}), big, big, TrainingState())
except OSError as error:
    print(error.strerror)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "File too large\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tying", ["three-way", "two-way", "untied"])
def test_a_model_and_its_optimizer_come_back(
    build: Callable[..., Transformer], tmp_path: Path, tying: str
) -> None:
    first, second = build(tying=tying), build(tying=tying, seed=8)
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-2, fused=True) for m in (first, second)]
    ids = torch.arange(4, 12).view(2, 4)
    for _ in range(3):
        first(ids, ids).sum().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
    write_checkpoint(
        tmp_path / "made",
        model_weights(first),
        optimizer_tensors(first, optimizers[0]),
        TrainingState(step=3),
    )
    checkpoint = read_checkpoint(tmp_path / "made")
    load_weights(second, checkpoint.weights, "here")
    load_optimizer(second, optimizers[1], checkpoint.optimizer, "here")
    for model, optimizer in zip((first, second), optimizers, strict=True):
        model(ids, ids).sum().backward()
        optimizer.step()
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    embeddings = [name for name in checkpoint.weights if "embedding" in name or "output" in name]
    assert len(embeddings) == {"three-way": 1, "two-way": 2, "untied": 3}[tying]


def test_weights_of_another_model_are_refused(build: Callable[..., Transformer]) -> None:
    model = build()
    weights = model_weights(model)
    with pytest.raises(CheckpointError, match="here: has no tensor 'decoder"):
        load_weights(model, {k: v for k, v in weights.items() if not k.startswith("dec")}, "here")
    with pytest.raises(CheckpointError, match="here: tensor 'more' is of another model"):
        load_weights(model, weights | {"more": torch.zeros(1)}, "here")
    wrong = weights | {"source_embedding.weight": torch.zeros(2, 3)}
    with pytest.raises(CheckpointError, match=r"has shape \(2, 3\), not \(23, 14\)"):
        load_weights(model, wrong, "here")


def test_numbers_are_converted_only_where_none_is_lost(build: Callable[..., Transformer]) -> None:
    model = build()
    weights = model_weights(model)
    name = "source_embedding.weight"
    half = weights[name].bfloat16()
    load_weights(model, weights | {name: half}, "here")
    assert torch.equal(model.get_parameter(name), half.float())
    for dtype in (torch.float64, torch.int8, torch.complex64):
        with pytest.raises(
            CheckpointError, match=rf"{name}' is of type {str(dtype)[6:]}, not float32"
        ):
            load_weights(model, weights | {name: weights[name].to(dtype)}, "here")


def test_an_optimizers_numbers_have_their_types(build: Callable[..., Transformer]) -> None:
    model = build()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.tensor([[5]]), torch.tensor([[6]])).sum().backward()
    optimizer.step()
    tensors = optimizer_tensors(model, optimizer)
    name = next(name for name in tensors if name.endswith(".exp_avg"))
    with pytest.raises(CheckpointError, match="exp_avg' is of type float64, not float32"):
        load_optimizer(model, optimizer, tensors | {name: tensors[name].double()}, "here")
    with pytest.raises(CheckpointError, match="exp_avg' is of type int64, not float32"):
        load_optimizer(model, optimizer, tensors | {name: tensors[name].long()}, "here")


def test_a_file_larger_than_its_header_says_is_not_read(tmp_path: Path) -> None:
    directory = saved(tmp_path / "made")
    os.truncate(directory / "weights.safetensors", 2**40)
    with pytest.raises(CheckpointError, match="its header does not describe what it holds"):
        read_weights(directory)


@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_is_read_through_no_symlink(tmp_path: Path, name: str) -> None:
    directory = saved(tmp_path / "made")
    (directory / name).rename(tmp_path / "elsewhere")
    (directory / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError, match=f"{name} is a symlink"):
        read_checkpoint(directory)


def test_a_manifest_that_is_nested_deeply_is_damaged(tmp_path: Path) -> None:
    directory = saved(tmp_path / "made")
    for depth in (400, 900, 100_000):
        nested = "[" * depth + "]" * depth
        (directory / MANIFEST).write_text(f'{{"notes": {nested}, "sha256": "0"}}')
        with pytest.raises(CheckpointError, match=r"manifest\.json: damaged"):
            read_manifest(directory)
