"""Hostile run directories: a good one, with one thing changed.

A `Case` is one mutation of one file, with the commands that read that file. The table is made of
every file and every kind of mutation, and of numbers and bytes that are changed by a seed.
"""

import hashlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRANSLATE = ("translate", "{run}", "--input", "{text}", "--output", "{out}")
BEST = (*TRANSLATE, "--checkpoint", "best")
STEP_200 = (*TRANSLATE, "--checkpoint", "200")
CTRANSLATE2 = (*TRANSLATE, "--engine", "ctranslate2")
EVALUATE = ("evaluate", "{run}", "--src", "{text}", "--ref", "{text}")
REPORT = ("report", "{run}")
EXPORT = ("export", "{run}", "--to", "ctranslate2", "--quantization", "float32")
SERVE = ("serve", "{run}", "--port", "0")
SERVE_EXPORT = (*SERVE, "--engine", "ctranslate2")

Command = tuple[str, ...]
Mutation = Callable[[Path, Path], None]
"""Change what is at a path; the second path is a directory outside the run."""

STEP = "checkpoints/step-00000200"
EXPORTED = "exports/ctranslate2-float32"

READ_BY: dict[str, tuple[Command, ...]] = {
    "config.toml": (TRANSLATE, EVALUATE, REPORT, EXPORT, SERVE),
    "origin.json": (SERVE, TRANSLATE),
    "tokenizer/manifest.json": (TRANSLATE, EXPORT),
    "tokenizer/joint.model": (EVALUATE, SERVE),
    "averaged/manifest.json": (TRANSLATE, REPORT),
    "averaged/weights.safetensors": (TRANSLATE, EXPORT, SERVE),
    f"{STEP}/manifest.json": (STEP_200, BEST),
    f"{STEP}/state.json": (BEST,),
    f"{STEP}/weights.safetensors": (STEP_200,),
    "metrics.jsonl": (REPORT, SERVE),
    "environment.json": (REPORT,),
    "scores.json": (SERVE,),
    "data/valid/manifest.json": (REPORT, EXPORT),
    "data/valid/00000.source.ids": (REPORT, EXPORT),
    "data/valid/00000.target.offsets": (REPORT, EXPORT),
    "data/train/manifest.json": (REPORT,),
    "data/train/00000.source.offsets": (REPORT,),
    f"{EXPORTED}/manifest.json": (CTRANSLATE2, SERVE_EXPORT),
    f"{EXPORTED}/model.bin": (CTRANSLATE2, SERVE_EXPORT),
    f"{EXPORTED}/config.json": (CTRANSLATE2,),
    f"{EXPORTED}/source_vocabulary.json": (CTRANSLATE2,),
    f"{EXPORTED}/tokenizer/joint.model": (CTRANSLATE2,),
}
"""Every file that a command reads, with some of the commands that do."""

DIRECTORIES: dict[str, tuple[Command, ...]] = {
    "tokenizer": (TRANSLATE,),
    "averaged": (TRANSLATE, SERVE),
    "checkpoints": (BEST, EXPORT),
    STEP: (BEST,),
    "data": (REPORT, EXPORT),
    "data/valid": (REPORT, EXPORT),
    "data/train": (REPORT,),
    "exports": (CTRANSLATE2, EXPORT),
    EXPORTED: (CTRANSLATE2, SERVE_EXPORT),
    f"{EXPORTED}/tokenizer": (CTRANSLATE2,),
}

MAY_BE_WITHOUT = ("metrics.jsonl", "environment.json", "scores.json", f"{STEP}/state.json")
"""What a run need not have. Without a state, another checkpoint is the best."""

MAY_BE_DAMAGED = ("environment.json", f"{STEP}/state.json")
"""What is taken for missing where it is damaged."""

LARGE = 1 << 40


@dataclass(frozen=True)
class Case:
    """One wrong run, and the command that is given it."""

    name: str
    place: str
    mutate: Mutation
    command: Command
    must_fail: bool
    """Whether anything but an error would be wrong; otherwise the output may also be right."""


def cases() -> list[Case]:
    """Return all cases; no two are alike."""
    found = [*_kinds(), *_directories(), *_json(), *_config(), *_tensors(), *_shards(), *_bytes()]
    found += _written()
    assert len({case.name for case in found}) == len(found)
    return found


# What kind of file it is


def _link_to_copy(path: Path, outside: Path) -> None:
    target = outside / "copy"
    if path.is_dir():
        shutil.copytree(path, target)
        shutil.rmtree(path)
    else:
        shutil.copy(path, target)
        path.unlink()
    path.symlink_to(target)


def _link(target: str) -> Mutation:
    def mutate(path: Path, _: Path) -> None:
        _remove(path)
        path.symlink_to(target)

    return mutate


def _fifo(path: Path, _: Path) -> None:
    _remove(path)
    os.mkfifo(path)


def _socket(path: Path, _: Path) -> None:
    _remove(path)
    before = os.getcwd()
    os.chdir(path.parent)  # The path of a socket may not be long.
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


def _directory(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()


def _empty(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def _missing(path: Path, _: Path) -> None:
    path.unlink()


def _grown(path: Path, _: Path) -> None:
    os.truncate(path, LARGE)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


KINDS: dict[str, Mutation] = {
    "symlink": _link_to_copy,
    "FIFO": _fifo,
    "a terabyte": _grown,
    "symlink to /dev/zero": _link("/dev/zero"),
    "socket": _socket,
    "directory": _directory,
    "empty": _empty,
    "missing": _missing,
}


def _kinds() -> Iterator[Case]:
    for kind, mutate in KINDS.items():
        for number, (place, commands) in enumerate(READ_BY.items()):
            command = commands[0 if kind in ("empty", "missing") else number % len(commands)]
            unread = kind in ("empty", "missing") and place in MAY_BE_WITHOUT
            yield Case(f"{place}: {kind}", place, mutate, command, not unread)


def _directories() -> Iterator[Case]:
    for place, commands in DIRECTORIES.items():
        for command in commands:
            name = f"{place}: symlink, {command[0]} {command[-1]}"
            yield Case(name, place, _link_to_copy, command, True)
    yield Case("averaged: FIFO", "averaged", _fifo, TRANSLATE, True)
    yield Case("checkpoints: dangling symlink", "checkpoints", _link("nowhere"), BEST, True)
    yield Case("averaged: symlink to itself", "averaged", _link("averaged"), TRANSLATE, True)


# What its JSON says


def _with(change: Callable[[Any], Any]) -> Mutation:
    def mutate(path: Path, _: Path) -> None:
        path.write_text(json.dumps(change(json.loads(path.read_text("utf-8")))))

    return mutate


def _updated(changes: dict[str, object]) -> Mutation:
    return _with(lambda body: body | changes)


def _text(content: str) -> Mutation:
    def mutate(path: Path, _: Path) -> None:
        path.write_text(content)

    return mutate


def _json() -> Iterator[Case]:
    deep = _text("[" * 50_000 + "]" * 50_000)
    for place, commands in READ_BY.items():
        if place.endswith(".json"):
            must_fail = place not in MAY_BE_DAMAGED
            yield Case(f"{place}: nested", place, deep, commands[0], must_fail)
            yield Case(f"{place}: [1]", place, _text("[1]"), commands[0], must_fail)
    origins: tuple[tuple[str, object, bool], ...] = (
        ("data", ["/etc"], True),
        ("init_from", 3, True),
        ("data", "/etc", False),
        ("data", "/dev/zero", False),
        ("longest_source", -(10**30), False),
        ("longest_source", 10**4000, False),
    )
    for key, value, must_fail in origins:
        change = _updated({key: value})
        name = f"origin.json: {key} = {str(value)[:20]}"
        yield Case(name, "origin.json", change, TRANSLATE, must_fail)
    outside = _updated({"data": "/dev", "data_sha256": {}})
    command: Command
    for command in (REPORT, EXPORT):
        yield Case(
            f"origin.json: data in /dev, {command[0]}", "origin.json", outside, command, False
        )
    session = {"cpu": "x" * 10**6, "torch": [1], "threads": 10**4000, "python": {"a": 1}}
    yield Case(
        "environment.json: wrong types",
        "environment.json",
        _text(json.dumps({"sessions": [3, session]})),
        REPORT,
        False,
    )
    for name, line in (
        ("large step", '{"kind": "train", "step": 1' + "0" * 400 + "}\n"),
        ("large loss", '{"kind": "train", "step": 1, "loss": 1' + "0" * 400 + "}\n"),
        ("list", '{"kind": "train", "step": 1, "loss": [1]}\n'),
        ("nested", "[" * 8000 + "\n"),
        ("long line", '{"kind": "' + "x" * 10**6 + '"}\n'),
        ("NULs", "\0" * 100 + "\n"),
    ):
        for command in (REPORT, SERVE):
            named = f"metrics.jsonl: {name}, {command[0]}"
            yield Case(named, "metrics.jsonl", _text(line), command, True)
    odd = '{"kind": "valid", "step": 1, "minutes": Infinity, "bleu": NaN, "perplexity": "x"}\n'
    yield Case("metrics.jsonl: not finite", "metrics.jsonl", _text(odd), SERVE, False)
    many = "".join(f'{{"kind":"train","step":{n},"loss":1.5}}\n' for n in range(100_000))
    yield Case("metrics.jsonl: many lines", "metrics.jsonl", _text(many), REPORT, False)
    yield Case("metrics.jsonl: many keys", "metrics.jsonl", _many_keys, REPORT, False)
    for place, commands in READ_BY.items():
        if place.endswith(".json"):
            name = f"{place}: a million empty lists"
            filled = _text("[" + "[]," * 1_000_000 + "0]")
            yield Case(name, place, filled, commands[0], place not in MAY_BE_DAMAGED)
    yield Case(
        "scores.json: not finite",
        "scores.json",
        _text('{"sentences": 1, "bleu": {"value": NaN}}'),
        SERVE,
        False,
    )
    yield Case(
        "scores.json: a list", "scores.json", _text('{"sentences": 1, "bleu": [1]}'), SERVE, True
    )
    for name in ("../../../config.toml", "/etc/passwd", "tokenizer/../x", "a/b", "", ".."):
        change = _with(_naming(name))
        yield Case(f"export names {name!r}", f"{EXPORTED}/manifest.json", change, CTRANSLATE2, True)
    positions: tuple[object, ...] = (0, -1, 2**40, "8", 1.5, None)
    for value in positions:
        change = _updated({"positions": value})
        named = f"export has positions {value!r}"
        yield Case(named, f"{EXPORTED}/manifest.json", change, CTRANSLATE2, True)

    tokens: dict[str, object] = {
        "decoder_start_token": None,
        "add_source_bos": None,
        "bos_token": 3,
    }
    for key, value in tokens.items():
        forged = _forged_export("config.json", {key: value})
        named = f"export's config has {key} = {value!r}"
        yield Case(named, f"{EXPORTED}/config.json", forged, CTRANSLATE2, True)


def _many_keys(path: Path, _: Path) -> None:
    """Write lines that take as much memory as lines can: every key is new."""
    with path.open("w") as file:
        for step in range(30_000):
            keys = "".join(f',"{step}-{key:0100}":1.5' for key in range(28))
            file.write(f'{{"kind":"train","step":{step}{keys}}}\n')


def _forged_export(name: str, changes: dict[str, object]) -> Mutation:
    """Change a JSON file of an export, and make its digest right."""

    def mutate(path: Path, _: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes))
        manifest = path.parent / "manifest.json"
        body = json.loads(manifest.read_text("utf-8"))
        body["sha256"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
        manifest.write_text(json.dumps(body))

    return mutate


def _naming(name: str) -> Callable[[Any], Any]:
    """Add a file to the digests of a manifest."""
    return lambda body: body | {"sha256": body["sha256"] | {name: "0" * 64}}


# Numbers of the config


def _setting(key: str, value: str) -> Mutation:
    def mutate(path: Path, _: Path) -> None:
        lines = path.read_text("utf-8").splitlines()
        (place,) = [n for n, line in enumerate(lines) if line.startswith(f"{key} = ")]
        lines[place] = f"{key} = {value}"
        path.write_text("\n".join(lines) + "\n")

    return mutate


def _config() -> Iterator[Case]:
    commands = (TRANSLATE, EVALUATE, REPORT, EXPORT, SERVE)
    changes = [
        ("d_model", 2**20),
        ("d_model", 64),
        ("d_ff", 2**40),
        ("num_layers", 1000),
        ("num_layers", 2),
        ("num_heads", 2**62),
        ("d_k", 2**61),
        ("d_v", 1),
        ("positions", '"learned"'),
        ("tying", '"untied"'),
        ("norm_order", '"post"'),
        ("attention_bias", "false"),
        ("kind", '"' + "x" * 500_000 + '"'),
        ("beam", 10**9),
        ("beam", -1),
        ("max_extra_tokens", 10**12),
        ("alpha", "nan"),
        ("dropout", "1e400"),
        ("vocab_size", 10**18),
        ("seed", "9" * 5000),
        ("warmup_steps", "[" * 5000),
    ]
    for number, (key, value) in enumerate(changes):
        mutate = _setting(key, str(value))
        command = commands[number % len(commands)]
        name = f"config.toml: {key} = {str(value)[:20]}"
        yield Case(name, "config.toml", mutate, command, True)


# Weights that a manifest calls undamaged


def _forged(change: Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]) -> Mutation:
    """Change header and numbers of weights, and make the digests right."""

    def mutate(path: Path, _: Path) -> None:
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header, data = change(json.loads(raw[8 : 8 + length]), raw[8 + length :])
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)
        _seal(path)

    return mutate


def _seal(path: Path) -> None:
    """Write a file's digest into the manifest of its checkpoint, and the manifest's own."""
    manifest = path.parent / "manifest.json"
    body = json.loads(manifest.read_text("utf-8"))
    del body["sha256"]
    with path.open("rb") as file:
        body["files"][path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    body["sha256"] = hashlib.sha256(_manifest(body)).hexdigest()
    manifest.write_bytes(_manifest(body))


def _manifest(body: object) -> bytes:
    return json.dumps(body, indent=1, sort_keys=True).encode() + b"\n"


def _first(header: dict[str, Any], **changes: object) -> dict[str, Any]:
    name = min(header)
    return header | {name: header[name] | changes}


def _as_type(name: str, size: int) -> Callable[..., tuple[dict[str, Any], bytes]]:
    """Write all numbers as zeros of another type, of so many bytes each."""

    def change(header: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        end, written = 0, {}
        for key, entry in header.items():
            start, stop = entry["data_offsets"]
            count = (stop - start) // 4
            places = [end, end + count * size]
            written[key] = {"dtype": name, "shape": entry["shape"], "data_offsets": places}
            end = places[1]
        return written, bytes(end)

    return change


def _state(**changes: object) -> Mutation:
    def mutate(path: Path, _: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes))
        _seal(path)

    return mutate


def _tensors() -> Iterator[Case]:
    changes: dict[str, Mutation] = {
        "type I8": _forged(_as_type("I8", 1)),
        "type C64": _forged(_as_type("C64", 8)),
        "type F64": _forged(_as_type("F64", 8)),
        "type unknown": _forged(_as_type("X", 4)),
        "one tensor less": _forged(
            lambda header, data: ({k: v for k, v in header.items() if k != min(header)}, data)
        ),
        "a shape of 2^62": _forged(lambda header, data: (_first(header, shape=[2**62, 4]), data)),
        "a negative shape": _forged(lambda header, data: (_first(header, shape=[-1, 4]), data)),
        "a shape of text": _forged(lambda header, data: (_first(header, shape="12"), data)),
        "offsets beyond the end": _forged(
            lambda header, data: (_first(header, data_offsets=[0, 2**50]), data)
        ),
        "no offsets": _forged(lambda header, data: (_first(header, data_offsets=[]), data)),
        "another name": _forged(
            lambda header, data: (
                {(f"{key}x" if key == min(header) else key): v for key, v in header.items()},
                data,
            )
        ),
        "an empty header": _forged(lambda _, data: ({}, data)),
        "a header of a petabyte": _text_bytes((2**50).to_bytes(8, "little")),
    }
    for number, (name, mutate) in enumerate(changes.items()):
        command = (TRANSLATE, EXPORT, EVALUATE, SERVE)[number % 4]
        place = "averaged/weights.safetensors"
        yield Case(f"{place}: {name}", place, mutate, command, True)
    for name, wrong in (
        ("step", {"step": -1}),
        ("large", {"tokens": 2**70}),
        ("type", {"valid_loss": "1"}),
        ("minutes", {"minutes": float("nan")}),
        ("key", {"more": 1}),
    ):
        # Its state cannot be read, so that another checkpoint is the best.
        place = f"{STEP}/state.json"
        yield Case(f"{place}: {name}", place, _state(**wrong), BEST, False)


def _text_bytes(content: bytes) -> Mutation:
    def mutate(path: Path, _: Path) -> None:
        path.write_bytes(content)
        _seal(path)

    return mutate


# Shards, whose digests only training looks at


def _numbers(kind: str, change: Callable[[list[int]], list[int]]) -> Mutation:
    size = {"<u2": 2, "<u8": 8}[kind]

    def mutate(path: Path, _: Path) -> None:
        raw = path.read_bytes()
        before = [int.from_bytes(raw[n : n + size], "little") for n in range(0, len(raw), size)]
        path.write_bytes(b"".join(n.to_bytes(size, "little") for n in change(before)))

    return mutate


def _shards() -> Iterator[Case]:
    offsets: dict[str, Callable[[list[int]], list[int]]] = {
        "fall": lambda numbers: [0, numbers[-1], *numbers[2:]],
        "start at 1": lambda numbers: [1, *numbers[1:]],
        "are beyond the file": lambda numbers: [*numbers[:-1], 2**63],
        "wrap around": lambda numbers: [0, 2**64 - 1, *numbers[2:]],
    }
    manifests: dict[str, dict[str, object]] = {
        "count": {"shards": [2**62]},
        "counts": {"shards": [10**30]},
        "no streams": {"streams": {}, "sha256": {}},
        "version": {"format_version": 10**30},
    }
    for command in (REPORT, EXPORT):
        for name, change in offsets.items():
            place = "data/valid/00000.source.offsets"
            named = f"{place}: {name}, {command[0]}"
            yield Case(named, place, _numbers("<u8", change), command, True)
        place = "data/valid/00000.source.ids"
        high = _numbers("<u2", lambda numbers: [60_000] * len(numbers))
        yield Case(f"{place}: no such ids, {command[0]}", place, high, command, True)
        place = "data/valid/manifest.json"
        for name, changes in manifests.items():
            named = f"{place}: {name}, {command[0]}"
            yield Case(named, place, _updated(changes), command, True)


# Bytes


def _flipped(seed: int) -> Mutation:
    def mutate(path: Path, _outside: Path) -> None:
        generator = random.Random(seed)
        content = bytearray(path.read_bytes())
        for _ in range(generator.randint(1, 4)):
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content)

    return mutate


def _bytes() -> Iterator[Case]:
    """Flip bits. Where a digest tells, it is an error; elsewhere it may be without effect."""
    for seed, (place, commands) in enumerate(READ_BY.items()):
        told = place.startswith(("averaged", "tokenizer/joint", EXPORTED)) and place != (
            f"{EXPORTED}/manifest.json"
        )
        if place != "config.toml":  # A flipped digit is another valid setting.
            yield Case(f"{place}: bits", place, _flipped(seed), commands[0], told)


# What is written into a run


def _planted(make: Mutation) -> Mutation:
    def mutate(path: Path, outside: Path) -> None:
        target = outside / "planted"
        target.write_bytes(b"planted")
        make(path, outside)

    return mutate


def _link_outside(path: Path, outside: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(outside / "planted")


def _link_to_nothing(path: Path, outside: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(outside / "to be made")


def _written() -> Iterator[Case]:
    for place, make, command, must_fail in (
        ("report.html", _link_outside, REPORT, False),
        ("report.html", _link_to_nothing, REPORT, False),
        (f".report.html.{os.getpid()}.tmp", _link_outside, REPORT, False),
        (".lock", _link_outside, EXPORT, True),
        (".lock", _link_to_nothing, EXPORT, True),
        (".averaged.replaced", _link_outside, EXPORT, False),
        (".averaged.new", _link_outside, EXPORT, False),
        (f"exports/.ctranslate2-float32.new.{os.getpid()}.tmp", _link_outside, EXPORT, False),
        ("exports/.ctranslate2-float32.new", _link_to_nothing, EXPORT, False),
        ("exports/.ctranslate2-float32.replaced", _link_outside, EXPORT, False),
        (f"{EXPORTED}/vmap.txt", _link_outside, CTRANSLATE2, True),
        (f"{EXPORTED}/shared_vocabulary.json", _link_outside, SERVE_EXPORT, True),
    ):
        name = f"{place.replace(str(os.getpid()), 'N')}: {make.__name__}, {command[0]}"
        yield Case(name, place, _planted(make), command, must_fail)
