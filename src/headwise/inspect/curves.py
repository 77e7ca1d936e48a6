"""Training curves: the metrics of runs as charts, to be drawn by a page or a figure."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headwise.errors import CheckpointError, RequestError
from headwise.files import Folder
from headwise.inspect.axes import Axis, linear_axis, log_axis
from headwise.runs.metrics import read_metrics
from headwise.visible import visible

Horizontal = Literal["steps", "minutes"]
Part = Literal["train", "valid", "all"]
"""What a curve shows of a run; "all" where there are no parts."""
Metrics = Sequence[Mapping[str, Any]]
"""The lines of one metrics.jsonl."""

PALETTE_LIGHT = ("#1648a7", "#f5400f", "#39a571", "#c57aba", "#899b2f", "#0d1a0c")
PALETTE_DARK = ("#88e5fd", "#d0732a", "#20856f", "#9a7ad2", "#f9c912", "#eefbe6")
"""Distinct to every kind of colour blindness, by a search over lightness and hue.

A test checks the distances, and the contrast with the background."""

NUM_MARKERS = 5
"""Shapes of markers. With 6 colours, a pair of colour and shape repeats after 30 runs."""

_MOST_POINTS = 1000
"""Of a curve: more points than a chart has pixels would only make files large."""

_MOST_MARKS = 25
"""Of a validation curve, where a marker shows that a value was measured."""

_FEW_MARKS = 8
"""Of a curve without a companion: enough to distinguish overlapping runs."""

_LARGEST = 1e100
"""Larger numbers count as infinite, and numbers as small as 0, so that no axis overflows."""

_LOG_FROM = 20
"""The ratio of largest to smallest value from which an axis is logarithmic."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a chart, with gaps where a y is NaN."""

    run: int
    """The run's position among all, which decides colour and marker."""
    label: str
    part: Part
    is_thin: bool
    """Whether it is drawn behind a companion: the training loss behind the validation loss."""
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    marks: tuple[int, ...]
    """Which points get the run's marker."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One quantity of all the runs that have it."""

    name: str
    """One short word, for ids."""
    title: str
    unit: str
    by: str
    """What the horizontal axis shows."""
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The last values of a run; None for those that its metrics do not have."""

    label: str
    step: int
    minutes: float | None
    train_loss: float | None
    valid_loss: float | None
    perplexity: float | None
    best_perplexity: float | None
    best_step: int | None
    speed: float | None
    left_out: int
    """How many values are not finite, and are gaps in the curves."""


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The charts to draw, and a summary of each run."""

    by: Horizontal
    charts: tuple[Chart, ...]
    runs: tuple[Summary, ...]


@dataclass(frozen=True, kw_only=True)
class _Quantity:
    name: str
    title: str
    unit: str
    parts: dict[Part, str]
    """The key of each part's metrics."""
    from_zero: bool = False
    may_be_log: bool = False


_QUANTITIES = (
    _Quantity(
        name="loss",
        title="Loss",
        unit="nats per token",
        parts={"train": "loss", "valid": "loss"},
        may_be_log=True,
    ),
    _Quantity(
        name="perplexity",
        title="Validation perplexity",
        unit="per token",
        parts={"valid": "perplexity"},
        may_be_log=True,
    ),
    _Quantity(
        name="rate",
        title="Learning rate",
        unit="step size of the optimizer",
        parts={"train": "rate"},
        from_zero=True,
    ),
    _Quantity(
        name="speed",
        title="Speed",
        unit="target tokens per second",
        parts={"train": "target_tokens_per_second"},
        from_zero=True,
    ),
)


def load_curves(runs: Sequence[Path], *, by: Horizontal = "steps") -> Curves:
    """Read the metrics of run directories; a run's label is its directory's name."""
    labels = labels_of(runs)
    return curves_of(dict(zip(labels, map(_metrics, runs), strict=True)), by=by)


def curves_of(metrics: Mapping[str, Metrics], *, by: Horizontal = "steps") -> Curves:
    """Turn the metrics of runs, by label, into charts; a quantity that no run has gets none."""
    charts = []
    for quantity in _QUANTITIES:
        curves = [
            curve
            for part, key in quantity.parts.items()
            for run, (label, lines) in enumerate(metrics.items())
            if (curve := _curve(lines, quantity, run, label, part, key, by)) is not None
        ]
        if curves:
            charts.append(_chart(quantity, curves, by))
    if not charts:
        raise RequestError(f"{', '.join(metrics)}: no value that could be drawn by {by}")
    runs = tuple(_summary(label, lines, by) for label, lines in metrics.items())
    return Curves(by=by, charts=tuple(charts), runs=runs)


def labels_of(runs: Sequence[Path]) -> list[str]:
    """Label each run by its directory, with as many parents as it takes to be distinct."""
    paths = [
        Path(os.path.abspath(run)) for run in runs
    ]  # Not resolved: a symlink has its own name.
    for path, count in Counter(paths).items():
        if count > 1:
            raise RequestError(f"{runs[paths.index(path)]}: the same run is given twice")
    depths = [1] * len(paths)
    while True:
        labels = ["/".join(p.parts[-depth:]) for p, depth in zip(paths, depths, strict=True)]
        counts = Counter(labels)
        if len(counts) == len(labels):
            return [visible(label.replace("\\", r"\\")) for label in labels]
        depths = [d + (counts[label] > 1) for d, label in zip(depths, labels, strict=True)]


def thinned(ys: Sequence[float], most: int = _MOST_POINTS) -> list[int]:
    """Choose at most so many points: both ends and, of each stretch, minimum, maximum and a gap."""
    count = len(ys)
    if count <= most:
        return list(range(count))
    kept = {0, count - 1}
    stretches = (most - 2) // 3
    for n in range(stretches):
        stretch = range(n * count // stretches, (n + 1) * count // stretches)
        finite = [i for i in stretch if not math.isnan(ys[i])]
        if finite:
            kept |= {min(finite, key=ys.__getitem__), max(finite, key=ys.__getitem__)}
        if len(finite) < len(stretch):
            kept.add(next(i for i in stretch if math.isnan(ys[i])))
    return sorted(kept)


def _metrics(run: Path) -> Metrics:
    if not run.is_dir():
        raise CheckpointError(f"{run}: no such run directory")
    if not Folder.of(run).has("metrics.jsonl"):
        raise CheckpointError(
            f"{run}: has no metrics.jsonl: it is not a run, or training has not started"
        )
    lines = read_metrics(run / "metrics.jsonl")
    if not lines:
        raise CheckpointError(f"{run}: metrics.jsonl has no line yet: wait for the first")
    return lines


def _curve(
    lines: Metrics,
    quantity: _Quantity,
    run: int,
    label: str,
    part: Part,
    key: str,
    by: Horizontal,
) -> Curve | None:
    points = [
        (x, y)
        for line in lines
        if line["kind"] == part
        and (x := _value(line, _key(by))) is not None
        and (y := _value(line, key)) is not None
        and not math.isnan(x)
    ]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if all(map(math.isnan, ys)):
        return None
    kept = thinned(ys)
    xs, ys = [xs[i] for i in kept], [ys[i] for i in kept]
    is_thin = part == "train" and len(quantity.parts) > 1
    return Curve(
        run=run,
        label=label,
        part=part,
        is_thin=is_thin,
        xs=tuple(xs),
        ys=tuple(ys),
        marks=_marks(ys, 0 if is_thin else _MOST_MARKS if part == "valid" else _FEW_MARKS, run),
    )


def _marks(ys: Sequence[float], most: int, run: int) -> tuple[int, ...]:
    """Spread markers over a curve, with another offset for each run; mark isolated points."""
    drawn = [not math.isnan(y) for y in ys]
    chosen: set[int] = set()
    if most:
        apart = math.ceil(len(ys) / most)
        first = int(apart * ((0.5 + run * 0.618) % 1))  # The golden ratio: offsets never repeat.
        chosen = set(range(first, len(ys), apart))
    around = [False, *drawn, False]
    alone = {i for i in range(len(ys)) if not around[i] and not around[i + 2]}
    return tuple(i for i in sorted(chosen | alone) if drawn[i])


def _chart(quantity: _Quantity, curves: list[Curve], by: Horizontal) -> Chart:
    xs = [x for curve in curves for x in curve.xs]
    ys = [y for curve in curves for y in curve.ys if not math.isnan(y)]
    low, high = min(ys), max(ys)
    if quantity.may_be_log and low > 0 and high >= _LOG_FROM * low:
        y_axis = log_axis(low, high)
    else:
        y_axis = linear_axis(low, high, from_zero=quantity.from_zero, most_ticks=8)
    return Chart(
        name=quantity.name,
        title=quantity.title,
        unit=f"{quantity.unit}, logarithmic" if y_axis.is_log else quantity.unit,
        by=by,
        # From the start of training, unless only a late part of it is there.
        x=linear_axis(min(xs), max(xs), from_zero=0 <= min(xs) <= max(xs) / 2 or len(set(xs)) == 1),
        y=y_axis,
        curves=tuple(curves),
    )


def _summary(label: str, lines: Metrics, by: Horizontal) -> Summary:
    train = [line for line in lines if line["kind"] == "train"]
    valid = [line for line in lines if line["kind"] == "valid"]
    rated = [
        (perplexity, line["step"])
        for line in valid
        if (perplexity := _value(line, "perplexity")) is not None and not math.isnan(perplexity)
    ]
    best = min(rated, default=(None, None))
    values = [
        _value(line, key)
        for quantity in _QUANTITIES
        for part, key in quantity.parts.items()
        for line in (train if part == "train" else valid)
    ]
    values += [_value(line, _key(by)) for line in lines]
    return Summary(
        label=label,
        step=lines[-1]["step"],
        minutes=_last(lines, "minutes"),
        train_loss=_last(train, "loss"),
        valid_loss=_last(valid, "loss"),
        perplexity=_last(valid, "perplexity"),
        best_perplexity=best[0],
        best_step=best[1],
        speed=_last(train, "target_tokens_per_second"),
        left_out=sum(value is not None and math.isnan(value) for value in values),
    )


def _last(lines: Metrics, key: str) -> float | None:
    found: Iterable[float | None] = (_value(line, key) for line in reversed(lines))
    return next((value for value in found if value is not None), None)


def _key(by: Horizontal) -> str:
    return "step" if by == "steps" else by


def _value(line: Mapping[str, Any], key: str) -> float | None:
    """Return a number of a line: None if it has none, NaN if it cannot be drawn."""
    value = line.get(key)
    if type(value) not in (int, float):
        return None
    assert isinstance(value, int | float)
    if not abs(value) <= _LARGEST:  # This is false for NaN, too.
        return math.nan
    return float(value) if abs(value) >= 1 / _LARGEST else 0.0
