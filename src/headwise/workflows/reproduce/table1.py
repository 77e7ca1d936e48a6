"""Table 1: what a layer of each kind costs, and how far a signal has to travel in it."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from headwise.runs.environment import describe
from headwise.training.task import Progress
from headwise.workflows.reproduce.layers import KINDS, LayerKind
from headwise.workflows.reproduce.store import CellStore

_NEAR = 0.25
"""How far a measured exponent may be from the paper's to count as the same."""

_LEAST_SECONDS = 0.2
"""How long a cell is measured at least, to average out what else the machine does."""

_PATH_WIDTH = 8


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured of one kind of layer, beside what the paper prints."""

    name: str
    title: str
    complexity: str
    sequential: str
    path: str
    flops_ratio: float
    """Of the longest input: torch's count by the formula's. Restricted attention computes blocks,
    which have more in them than its window."""
    flop_exponents: tuple[float, float]
    """By n and by d, of torch's counts between the two largest sizes."""
    time_exponents: tuple[float, float]
    """The same of the measured times, forward and backward."""
    holds_from: tuple[int | None, int | None]
    """The size from which the time grows as the paper says; None: not up to the largest."""
    seconds: dict[str, float]
    """By "n x d"."""
    flops: dict[str, int]
    sequential_operations: int
    """By the formula of the layer, for the longest of the path lengths."""
    paths: dict[int, int]
    """By n: layers, or steps of the recurrence, until the first position influences the last."""
    expected_paths: dict[int, int]


@dataclass(frozen=True, kw_only=True)
class Table1:
    """All rows, and under which conditions they were measured."""

    conditions: dict[str, Any]
    rows: tuple[Row, ...]


def reproduce_table1(
    out: Path,
    *,
    lengths: Sequence[int],
    widths: Sequence[int],
    path_lengths: Sequence[int],
    rounds: int = 5,
    on_progress: Progress = lambda *_: None,
) -> Table1:
    """Measure every kind of layer, or go on measuring; the cells are stored in table1.json.

    Times are measured for all lengths at the middle width, and for all widths at the middle length.
    """
    n, d = lengths[len(lengths) // 2], widths[len(widths) // 2]
    conditions = {
        "lengths": list(lengths),
        "widths": list(widths),
        "path_lengths": list(path_lengths),
        "rounds": rounds,
        **_machine(),
    }
    store = CellStore(out / "table1.json", conditions)
    sizes = [(length, d) for length in lengths] + [(n, width) for width in widths if width != d]
    total = len(KINDS) * (len(sizes) + len(path_lengths))
    done = 0
    for kind in KINDS:
        for size in sizes:
            store.cell(f"{kind.name} {_key(*size)}", partial(_measure, kind, *size, rounds))
            on_progress("measuring", done := done + 1, total)
        for length in path_lengths:
            store.cell(f"{kind.name} path {length}", partial(measure_path, kind, length))
            on_progress("measuring", done := done + 1, total)
    rows = tuple(_row(kind, store, lengths, widths, path_lengths, (n, d)) for kind in KINDS)
    table = Table1(conditions=conditions, rows=rows)
    store.save(rows=[asdict(row) for row in rows])
    return table


def count_flops(kind: LayerKind, length: int, width: int) -> int:
    """Return what torch's counter counts in one forward pass."""
    counter = FlopCounterMode(display=False)
    # It does not count torch's fused attention on CPU.
    with sdpa_kernel(SDPBackend.MATH), counter, torch.no_grad():
        kind.apply(torch.randn(length, width), kind.weights(width), 0)
    return int(counter.get_total_flops())


def measure_path(kind: LayerKind, length: int) -> int:
    """Return how many layers it takes until the first position influences the last.

    Influence is a derivative that is not 0. Of a recurrent layer, which needs one, it is the number
    of steps that lie on the way from the first position to the last.
    """
    torch.manual_seed(1)
    if kind.name == "recurrent":
        states = [_depends(kind, last + 1, {last}, 0) for last in range(length)]
        return sum(0 in found for found in states)
    needed, layers = {length - 1}, 0
    while 0 not in needed:
        # Layer by layer: products of many small derivatives would be rounded to 0.
        needed = _depends(kind, length, needed, layers)
        layers += 1
    return layers


def _depends(kind: LayerKind, length: int, outputs: set[int], layer: int) -> set[int]:
    """Return the positions of a layer's input that some positions of its output depend on."""
    x = torch.rand(length, _PATH_WIDTH, dtype=torch.float64, requires_grad=True)
    weights = kind.weights(_PATH_WIDTH).double().abs()
    output = kind.apply(x, weights, layer)
    (gradient,) = torch.autograd.grad(output[sorted(outputs)].sum(), x)
    found: list[int] = (gradient != 0).any(1).nonzero().flatten().tolist()
    return set(found)


def _measure(kind: LayerKind, length: int, width: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(1)
    weights = kind.weights(width).requires_grad_()
    x = torch.randn(length, width, requires_grad=True)
    direction = torch.randn(length, width)

    def run() -> float:
        start = time.perf_counter()
        kind.apply(x, weights, 0).backward(direction)
        seconds = time.perf_counter() - start
        x.grad = weights.grad = None
        return seconds

    run()
    best, spent, count = math.inf, 0.0, 0
    while count < rounds or spent < _LEAST_SECONDS:
        best = min(best, seconds := run())
        spent, count = spent + seconds, count + 1
    return {"seconds": best, "flops": count_flops(kind, length, width)}


def _row(
    kind: LayerKind,
    store: CellStore,
    lengths: Sequence[int],
    widths: Sequence[int],
    path_lengths: Sequence[int],
    middle: tuple[int, int],
) -> Row:
    n, d = middle
    by_length = [store[f"{kind.name} {_key(length, d)}"] for length in lengths]
    by_width = [store[f"{kind.name} {_key(n, width)}"] for width in widths]
    sizes = [(length, d) for length in lengths] + [(n, width) for width in widths]
    cells = dict(zip(sizes, [*by_length, *by_width], strict=True))
    return Row(
        name=kind.name,
        title=kind.title,
        complexity=kind.complexity,
        sequential=kind.sequential,
        path=kind.path,
        flops_ratio=by_length[-1]["flops"] / kind.flops(lengths[-1], d),
        flop_exponents=(
            exponents(lengths, [cell["flops"] for cell in by_length])[-1],
            exponents(widths, [cell["flops"] for cell in by_width])[-1],
        ),
        time_exponents=(
            exponents(lengths, [cell["seconds"] for cell in by_length])[-1],
            exponents(widths, [cell["seconds"] for cell in by_width])[-1],
        ),
        holds_from=(
            holds_from(lengths, [cell["seconds"] for cell in by_length], kind.exponents[0]),
            holds_from(widths, [cell["seconds"] for cell in by_width], kind.exponents[1]),
        ),
        seconds={_key(*size): cell["seconds"] for size, cell in cells.items()},
        flops={_key(*size): cell["flops"] for size, cell in cells.items()},
        sequential_operations=kind.sequential_operations(path_lengths[-1]),
        paths={length: store[f"{kind.name} path {length}"] for length in path_lengths},
        expected_paths={length: kind.longest_path(length) for length in path_lengths},
    )


def exponents(sizes: Sequence[int], values: Sequence[float]) -> list[float]:
    """Return the exponent with which values grow between each size and the next."""
    pairs = zip(sizes, sizes[1:], values, values[1:], strict=False)
    return [
        math.log(after / before) / math.log(large / small) for small, large, before, after in pairs
    ]


def holds_from(sizes: Sequence[int], values: Sequence[float], expected: float) -> int | None:
    """Return the size from which on every exponent is near the expected one."""
    found = None
    for size, exponent in reversed(list(zip(sizes, exponents(sizes, values), strict=False))):
        if abs(exponent - expected) > _NEAR:
            break
        found = size
    return found


def _key(length: int, width: int) -> str:
    return f"{length} x {width}"


def _machine() -> dict[str, Any]:
    """Return what times depend on."""
    found = describe(torch.device("cpu"), 1)
    return {key: found[key] for key in ("cpu", "cores", "threads", "torch")}
