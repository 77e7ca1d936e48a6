"""Bracket scores as tables for the terminal and as JSON values."""

from collections.abc import Callable
from dataclasses import asdict

from headwise.evaluation.bracket_scores import BracketScores, BracketSummary
from headwise.evaluation.table import text_table
from headwise.visible import visible

_FIGURES: dict[str, Callable[[BracketSummary], str]] = {
    "F1": lambda s: f"{s.f1:.2f}",
    "recall": lambda s: f"{s.recall:.2f}",
    "precision": lambda s: f"{s.precision:.2f}",
    "complete match": lambda s: f"{s.complete_match:.2f}",
    "average crossing": lambda s: f"{s.average_crossing:.2f}",
    "no crossing": lambda s: f"{s.no_crossing:.2f}",
    "2 or less crossing": lambda s: f"{s.two_or_less_crossing:.2f}",
    "tagging accuracy": lambda s: f"{s.tagging_accuracy:.2f}",
    "sentences": lambda s: f"{s.sentences:,}",
    "error sentences": lambda s: f"{s.errors:,}",
    "skipped sentences": lambda s: f"{s.skipped:,}",
}
_BY_LENGTH = ("F1", "recall", "precision", "complete match", "average crossing", "tagging accuracy")


def bracket_report(scores: BracketScores) -> str:
    """Format the summary of all sentences and of the short ones, with notes."""
    columns = scores.overall, scores.short
    rows = [(name, *map(figure, columns)) for name, figure in _FIGURES.items()]
    lines = [text_table(("", "all", f"up to {scores.cutoff:,} words"), rows)]
    if scores.interval is not None:
        mean, margin = scores.interval.mean, scores.interval.margin
        lines += ["", f"F1 of all sentences, 95 % interval: {mean:.2f} ± {margin:.2f}"]
    lines += [f"Note: {visible(note)}." for note in scores.notes]
    return "\n".join(lines)


def length_table(scores: BracketScores) -> str:
    """Format the scores of sentences of different lengths."""
    rows = []
    for score in scores.by_length():
        summary = score.summary
        upper = "+" if score.longest is None else f"–{score.longest}"
        counts = f"{summary.sentences:,}", f"{summary.scored:,}"
        figures = (_FIGURES[name](summary) if summary.scored else "" for name in _BY_LENGTH)
        rows.append((f"{score.shortest}{upper}", *counts, *figures))
    return text_table(("words", "sentences", "scored", *_BY_LENGTH), rows)


def label_table(scores: BracketScores) -> str:
    """Format the scores of each label, the most frequent first."""
    rows = [
        (
            score.label or "(none)",
            f"{score.gold:,}",
            f"{score.test:,}",
            f"{score.f1:.2f}",
            f"{score.recall:.2f}",
            f"{score.precision:.2f}",
        )
        for score in scores.labels
    ]
    return text_table(("label", "gold", "test", "F1", "recall", "precision"), rows)


def sentence_table(scores: BracketScores) -> str:
    """Format a line for each sentence, with the columns of EVALB's table."""
    header = ("line", "length", "status", "recall", "precision", "matched", "gold", "test")
    rows = [
        (
            f"{number}",
            f"{row.length}",
            row.status,
            f"{row.recall:.2f}",
            f"{row.precision:.2f}",
            f"{row.matched}",
            f"{row.gold}",
            f"{row.test}",
            f"{row.crossing}",
            f"{row.words}",
            f"{row.correct_tags}",
            f"{row.tagging_accuracy:.2f}",
        )
        for number, row in enumerate(scores.rows, start=1)
    ]
    table = text_table((*header, "crossing", "words", "tags", "tagging"), rows)
    reasons = ["", *(visible(row.reason) for row in scores.rows)]
    lines = zip(table.split("\n"), reasons, strict=True)
    return "\n".join(f"{line}  {reason}".rstrip() for line, reason in lines)


def bracket_values(
    scores: BracketScores, *, by_length: bool, by_label: bool, sentences: bool
) -> dict[str, object]:
    """Return the summary, and the parts asked for, as JSON values."""
    values: dict[str, object] = {
        "overall": scores.overall.to_dict(),
        "cutoff": scores.cutoff,
        "short": scores.short.to_dict(),
        "interval": None if scores.interval is None else asdict(scores.interval),
        "notes": scores.notes,
    }
    if by_length:
        values["by_length"] = [score.to_dict() for score in scores.by_length()]
    if by_label:
        values["by_label"] = [score.to_dict() for score in scores.labels]
    if sentences:
        values["sentences"] = [row.to_dict() for row in scores.rows]
    return values
