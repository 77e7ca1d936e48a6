"""What the paper concludes from Table 3, and whether that holds for a measured table."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headwise.workflows.reproduce.pooled import Spread
from headwise.workflows.reproduce.table3 import Row, Table3

Claim = Literal["worse", "better", "equal"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A comparison of two rows that the paper draws a conclusion from (§6.2)."""

    says: str
    row: str
    """Which is worse or better than the other, or equal."""
    claim: Claim
    to: str = "base"
    by_bleu: bool = False


FINDINGS = (
    Finding(says="one head is worse than eight", row="a-h1", claim="worse"),
    Finding(says="too many heads are worse", row="a-h32", claim="worse"),
    Finding(says="a small d_k is worse", row="b-dk16", claim="worse"),
    Finding(says="fewer layers are worse", row="c-n2", claim="worse"),
    Finding(says="narrower layers are worse", row="c-d256", claim="worse"),
    Finding(says="a smaller d_ff is worse", row="c-ff1024", claim="worse"),
    Finding(says="more layers are better", row="c-n8", claim="better"),
    Finding(says="wider layers are better", row="c-d1024", claim="better"),
    Finding(says="a larger d_ff is better", row="c-ff4096", claim="better"),
    Finding(says="the big model is better", row="big", claim="better"),
    Finding(says="no dropout is worse", row="d-drop0", claim="worse"),
    Finding(says="no smoothing: a better perplexity", row="d-ls0", claim="better"),
    Finding(says="no smoothing: a worse BLEU", row="d-ls0", claim="worse", by_bleu=True),
    Finding(says="learned positions are as good", row="e-learned", claim="equal"),
)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whether a finding holds here."""

    finding: Finding
    paper: float
    """The paper's difference, in perplexity or BLEU."""
    here: float
    half_width: float | None
    """Of the interval of our difference; None with a single seed."""
    verdict: str


def judge(table: Table3) -> list[Judgement]:
    """Judge every finding whose rows were trained."""
    rows = {row.recipe.removeprefix("table3-"): row for row in table.rows}
    return [
        _judge(finding, rows[finding.row], rows[finding.to], table)
        for finding in FINDINGS
        if finding.row in rows and finding.to in rows
    ]


def difference(row: Row, other: Row) -> float:
    """Return how much higher the perplexity of a row is."""
    return row.perplexity - other.perplexity


def difference_width(row: Row, other: Row, spread: Spread | None) -> float | None:
    """Return half of the interval of `difference`, from the spread of logarithms."""
    if spread is None:
        return None
    width = spread.half_width(len(row.perplexities), len(other.perplexities))
    return other.perplexity * math.expm1(width)


def _judge(finding: Finding, row: Row, other: Row, table: Table3) -> Judgement:
    if finding.by_bleu:
        here, paper = row.bleu - other.bleu, _paper(row, other, lambda r: r.paper.bleu)
        spread = table.bleu_spread
        width = None if spread is None else spread.half_width(len(row.bleus), len(other.bleus))
        worse = -here
    else:
        here, paper = difference(row, other), _paper(row, other, lambda r: r.paper.perplexity)
        width = difference_width(row, other, table.log_spread)
        worse = here
    return Judgement(
        finding=finding,
        paper=paper,
        here=here,
        half_width=width,
        verdict=_verdict(finding.claim, worse, width),
    )


def _paper(row: Row, other: Row, value: Callable[[Row], float | None]) -> float:
    first, second = value(row), value(other)
    assert first is not None
    assert second is not None
    return first - second


def _verdict(claim: Claim, worse: float, width: float | None) -> str:
    if width is None:
        if claim == "equal":
            return "not known: one seed has no interval"
        is_same = worse > 0 if claim == "worse" else worse < 0
        return f"{'same' if is_same else 'opposite'} sign, but one seed has no interval"
    is_clear = abs(worse) > width
    if claim == "equal":
        return "disagrees" if is_clear else "holds: the difference is within the interval"
    if not is_clear:
        return "not resolved: the difference is within the interval"
    return "holds" if (worse > 0) == (claim == "worse") else "disagrees"
