"""Scores of classifiers as text and as JSON values."""

from dataclasses import asdict
from typing import Any

from headwise.evaluation.classes import ClassScores
from headwise.evaluation.resampling import Interval
from headwise.evaluation.table import text_table

_MOST_COLUMNS = 12
"""Classes of a confusion matrix that fits a terminal."""

_MOST_CONFUSIONS = 10
_LONGEST_HEADING = 10


def class_report(scores: ClassScores) -> str:
    """Format the scores, a table by class, and what was confused with what."""
    parts = [_overall(scores), _by_class(scores)]
    if scores.confusion is not None:
        is_small = len(scores.classes) <= _MOST_COLUMNS
        parts.append(_matrix(scores) if is_small else _confusions(scores))
    return "\n\n".join(filter(None, parts))


def class_values(scores: ClassScores) -> dict[str, Any]:
    """Return the scores as JSON can hold them."""
    return asdict(scores)


def percent(share: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * share:.1f}"


def margin(interval: Interval | None) -> str:
    """Write the half-width of an interval of shares; nothing if there is none."""
    return "" if interval is None else f"± {percent(interval.margin)}"


def _overall(scores: ClassScores) -> str:
    has_one_label = scores.confusion is not None
    rows = [
        (
            "accuracy" if has_one_label else "all labels right",
            percent(scores.accuracy),
            margin(scores.accuracy_interval),
        ),
        ("macro F1", percent(scores.macro_f1), margin(scores.macro_f1_interval)),
        ("weighted F1", percent(scores.weighted_f1), ""),
        ("calibration error", percent(scores.calibration_error), ""),
    ]
    if not has_one_label:
        rows.insert(1, ("micro F1", percent(scores.micro_f1), ""))
    table = text_table(("%", "score", "95 % interval"), rows)
    return f"{table}\n\n{scores.examples:,} examples"


def _by_class(scores: ClassScores) -> str:
    rows = [
        (
            each.name,
            percent(each.f1),
            percent(each.precision),
            percent(each.recall),
            f"{each.gold:,}",
            f"{each.found:,}",
        )
        for each in scores.classes
    ]
    return text_table(("class", "F1", "precision", "recall", "gold", "found"), rows)


def _matrix(scores: ClassScores) -> str:
    assert scores.confusion is not None
    names = [each.name for each in scores.classes]
    counts = {(gold, found): count for gold, found, count in scores.confusion}
    header = ("gold \\ found", *(name[:_LONGEST_HEADING] for name in names))
    rows = [
        (name, *(f"{counts.get((gold, found), 0):,}" for found in range(len(names))))
        for gold, name in enumerate(names)
    ]
    return text_table(header, rows)


def _confusions(scores: ClassScores) -> str:
    """List what was confused most often, where a matrix would be too large."""
    assert scores.confusion is not None
    names = [each.name for each in scores.classes]
    found = [
        (count, names[gold], names[answer])
        for gold, answer, count in scores.confusion
        if gold != answer
    ]
    found.sort(key=lambda each: (-each[0], each[1:]))
    rows = [(gold, answer, f"{count:,}") for count, gold, answer in found[:_MOST_CONFUSIONS]]
    return text_table(("most often confused", "found", "times"), rows) if rows else ""
