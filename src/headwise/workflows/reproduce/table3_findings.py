"""What the paper concludes from Table 3, and whether that holds for a measured table.

Perplexities are compared as logarithms: seeds change a perplexity by a factor.
"""

import math
from dataclasses import dataclass
from typing import Literal

from headwise.workflows.reproduce.pooled import Spread
from headwise.workflows.reproduce.table3 import Row, Table3

Claim = Literal["worse", "better", "equal"]

_EQUAL_RATIO = 5.01 / 4.92
"""Perplexities that are nearer than this count as equal: the smallest difference from which the
paper concludes anything, that of 32 heads."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A comparison of a row with base that the paper draws a conclusion from."""

    says: str
    row: str
    """Which is worse or better than base, or equal."""
    claim: Claim
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
    """Judge every finding whose row was trained."""
    rows = {row.recipe.removeprefix("table3-"): row for row in table.rows}
    return [
        _judge(finding, rows[finding.row], table) for finding in FINDINGS if finding.row in rows
    ]


def difference(row: Row, base: Row) -> float:
    """Return how much higher the perplexity of a row is."""
    return row.perplexity - base.perplexity


def difference_width(row: Row, base: Row, spread: Spread | None) -> float | None:
    """Return half of the interval of `difference`, from the spread of logarithms."""
    if spread is None:
        return None
    seeds = len(row.perplexities)
    return spread.half_width(seeds) * math.hypot(row.perplexity, base.perplexity)


def _judge(finding: Finding, row: Row, table: Table3) -> Judgement:
    base, seeds = table.base, len(row.bleus)
    if finding.by_bleu:
        assert row.paper.bleu is not None
        assert base.paper.bleu is not None
        paper, here = row.paper.bleu - base.paper.bleu, row.bleu - base.bleu
        spread = table.bleu_paired
        shown = None if spread is None else spread.half_width(seeds, seeds)
        worse, width = -here, shown
    else:
        assert row.paper.perplexity is not None
        assert base.paper.perplexity is not None
        paper, here = row.paper.perplexity - base.paper.perplexity, difference(row, base)
        spread = table.log_paired
        shown = difference_width(row, base, spread)
        worse = math.log(row.perplexity / base.perplexity)
        width = None if spread is None else spread.half_width(seeds, seeds)
    verdict = _verdict(finding.claim, worse, width)
    if row.overfits and not finding.by_bleu:
        verdict += " (overfitted)"
    return Judgement(finding=finding, paper=paper, here=here, half_width=shown, verdict=verdict)


def _verdict(claim: Claim, worse: float, width: float | None) -> str:
    if width is None:
        if claim == "equal":
            return "not known: one seed has no interval"
        is_same = worse > 0 if claim == "worse" else worse < 0
        return f"{'same' if is_same else 'opposite'} sign, but one seed has no interval"
    if claim == "equal" and abs(worse) + width <= math.log(_EQUAL_RATIO):
        return f"holds: within {100 * (_EQUAL_RATIO - 1):.1f} % of base"
    if abs(worse) <= width:
        return "not resolved: the difference is within the interval"
    if claim == "equal":
        return "disagrees" if abs(worse) > math.log(_EQUAL_RATIO) else "not resolved"
    return "holds" if (worse > 0) == (claim == "worse") else "disagrees"
