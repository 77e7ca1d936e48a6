"""Whether one system is better than another beyond chance: the paired bootstrap test."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

from headwise.errors import DataError
from headwise.evaluation.corpus import References, check_corpus
from headwise.evaluation.resampling import RESAMPLES, Interval, fixed_seed

if TYPE_CHECKING:
    from sacrebleu.significance import Result

SIGNIFICANT = 0.05
"""Below this, a difference as large would seldom be seen between systems of the same quality."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One system beside the baseline, which itself has no p-values."""

    name: str
    bleu: float
    bleu_interval: Interval
    bleu_p: float | None
    chrf: float
    chrf_interval: Interval
    chrf_p: float | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Systems that translated the same sentences; the first is the baseline."""

    systems: tuple[Compared, ...]
    bleu_signature: str
    chrf_signature: str

    def to_dict(self) -> dict[str, object]:
        """Return the comparison as JSON values."""
        return asdict(self)


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: References,
    *,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Test each system, a name and its hypotheses, against the first by paired bootstrap.

    The p-value is the probability of a difference at least as large as the one seen if the two
    were equally good (Koehn 2004, as sacreBLEU computes it). It is 1 where there is no difference;
    sacreBLEU counts only larger ones and calls two equal systems different.
    """
    from sacrebleu import BLEU, CHRF
    from sacrebleu.metrics.base import Metric
    from sacrebleu.significance import PairedTest

    if len(systems) < 2:
        raise DataError("a comparison needs two systems or more")
    names = [name for name, _ in systems]
    if len(set(names)) < len(names):
        raise DataError("two of the systems to compare have the same name")
    for _, hypotheses in systems:
        check_corpus(hypotheses, references)
    metrics: dict[str, Metric] = {"BLEU": BLEU(tokenize="13a", force=True), "chrF2": CHRF()}
    with fixed_seed():
        signatures, found = PairedTest(
            list(systems),
            metrics,
            cast("Sequence[Sequence[str]]", references),
            test_type="bs",
            n_samples=resamples,
        )()
    bleus, chrfs = (cast("list[Result]", found[name]) for name in metrics)
    return Comparison(
        systems=tuple(
            Compared(
                name=name,
                bleu=float(b.score),
                bleu_interval=_interval(b.mean, b.ci),
                bleu_p=_p_value(b, bleus[0]),
                chrf=float(c.score),
                chrf_interval=_interval(c.mean, c.ci),
                chrf_p=_p_value(c, chrfs[0]),
            )
            for name, b, c in zip(names, bleus, chrfs, strict=True)
        ),
        bleu_signature=str(signatures["BLEU"]),
        chrf_signature=str(signatures["chrF2"]),
    )


def _p_value(found: "Result", baseline: "Result") -> float | None:
    if found is baseline:
        return None
    return 1.0 if found.score == baseline.score else found.p_value


def _interval(mean: float | None, margin: float | None) -> Interval:
    assert mean is not None
    assert margin is not None
    return Interval(mean=float(mean), margin=float(margin))
