"""Scores as text: aligned columns, or tab-separated values for spreadsheets."""

from collections.abc import Sequence

from headwise.evaluation.metrics import Bleu, ChrF
from headwise.evaluation.resampling import Interval
from headwise.evaluation.scores import Scores
from headwise.evaluation.significance import SIGNIFICANT, Comparison
from headwise.visible import visible

WHY_THEY_DIFFER = (
    "Publish BLEU with its signature: sacreBLEU cuts every text into tokens by one rule (13a).\n"
    "The paper's figures are Moses BLEU with compounds split, which is mostly a little higher."
)


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align cells under a header: the first column to the left, all others to the right."""
    table = [[visible(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def report(scores: Scores) -> str:
    """Format one system's scores with signatures and a note on which of them to publish."""
    rows = [
        (name, f"{found.value:.2f}", _margin(found.interval)) for name, found in _listed(scores)
    ]
    best = scores.bleu
    lines = [
        text_table(("", "score", "95 % interval"), rows),
        "",
        f"{scores.sentences:,} sentences, {_count(scores.references, 'reference')}; "
        f"length ratio {best.length_ratio:.3f} "
        f"({best.hypothesis_length:,} tokens for {best.reference_length:,})",
        f"BLEU  {best.signature}",
        f"chrF  {scores.chrf.signature}",
        *(f"Note: {visible(note)}." for note in scores.notes),
        WHY_THEY_DIFFER,
    ]
    return "\n".join(lines)


def tsv(scores: Scores) -> str:
    """Write a line for each score, in full precision, under a line of column names."""
    lines = ["score\tvalue\tmean\tmargin\tsignature"]
    for name, found in _listed(scores):
        interval = found.interval
        cells = ("", "") if interval is None else (repr(interval.mean), repr(interval.margin))
        row = (name, repr(found.value), *cells, found.signature)
        lines.append("\t".join(map(visible, row)))
    return "\n".join(lines)


def score_cells(scores: Scores) -> dict[str, str]:
    """Return the cells of one row in a table of several systems, by column."""
    return {
        "BLEU": f"{scores.bleu.value:.2f}",
        "95 %": _margin(scores.bleu.interval),
        "lower-cased": f"{scores.bleu_lowercased.value:.2f}",
        "chrF": f"{scores.chrf.value:.2f}",
        "tokenised": f"{scores.tokenised.plain.value:.2f}",
        "paper's": f"{scores.tokenised.compounds.value:.2f}",
        "length": f"{scores.bleu.length_ratio:.3f}",
    }


def comparison_table(comparison: Comparison) -> str:
    """Format a paired test; a star marks significant differences from the first system."""
    rows = [
        (
            system.name,
            f"{system.bleu:.2f}",
            _margin(system.bleu_interval),
            _p_value(system.bleu_p),
            f"{system.chrf:.2f}",
            _margin(system.chrf_interval),
            _p_value(system.chrf_p),
        )
        for system in comparison.systems
    ]
    header = ("system", "BLEU", "95 %", "p", "chrF", "95 %", "p")
    baseline = comparison.systems[0].name
    return "\n".join(
        [
            text_table(header, rows),
            f"* differs from {visible(baseline)} (p < {SIGNIFICANT}, paired bootstrap)",
            f"BLEU  {comparison.bleu_signature}",
            f"chrF  {comparison.chrf_signature}",
        ]
    )


def _listed(scores: Scores) -> list[tuple[str, Bleu | ChrF]]:
    """Name every score, the one to publish first."""
    moses = f"Moses BLEU ({scores.tokenised.language})"
    return [
        ("BLEU", scores.bleu),
        ("BLEU, lower-cased", scores.bleu_lowercased),
        ("chrF", scores.chrf),
        (moses, scores.tokenised.plain),
        (f"{moses}, lower-cased", scores.tokenised.plain_lowercased),
        (f"{moses}, compounds split", scores.tokenised.compounds),
        (f"{moses}, compounds split, lower-cased", scores.tokenised.compounds_lowercased),
    ]


def _margin(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.mean:.2f} ± {interval.margin:.2f}"


def _p_value(p: float | None) -> str:
    """Format a p-value with its star, or a blank of the same width, so that digits align."""
    return "" if p is None else f"{p:.4f}{'*' if p < SIGNIFICANT else ' '}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
