"""BLEU and chrF as sacreBLEU computes them, with the signatures that make them comparable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from headwise.evaluation.corpus import References, check_corpus
from headwise.evaluation.resampling import Interval, fixed_seed


@dataclass(frozen=True, kw_only=True)
class Bleu:
    """A BLEU score in percent, and its components."""

    value: float
    signature: str
    """sacreBLEU's settings: references, case, tokens, smoothing, version."""
    interval: Interval | None
    precisions: tuple[float, ...]
    """Of n-grams of one to four tokens, in percent, smoothed as the signature says."""
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int
    """In tokens; for each sentence, of the reference nearest in length."""
    length_ratio: float


@dataclass(frozen=True, kw_only=True)
class ChrF:
    """A chrF score in percent: character n-grams up to six, recall counting twice (chrF2)."""

    value: float
    signature: str
    interval: Interval | None


def bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    lowercase: bool = False,
    resamples: int = 0,
) -> Bleu:
    """Compute sacreBLEU (13a) of detokenised text; with `resamples`, its confidence interval."""
    check_corpus(hypotheses, references)
    return measured_bleu(hypotheses, references, lowercase=lowercase, resamples=resamples)


def chrf(hypotheses: Sequence[str], references: References, *, resamples: int = 0) -> ChrF:
    """Compute sacreBLEU's chrF of detokenised text; with `resamples`, its confidence interval."""
    from sacrebleu import CHRF

    class PlainChrF(CHRF):
        """Convert to floats: sacreBLEU fails where a resample scores an int 0."""

        def _compute_f_score(self, statistics: list[int]) -> float:
            return float(super()._compute_f_score(statistics))

    check_corpus(hypotheses, references)
    metric = PlainChrF()
    with fixed_seed():
        found = metric.corpus_score(hypotheses, _present(references), n_bootstrap=resamples)
    return ChrF(
        value=float(found.score),
        signature=str(metric.get_signature()),
        interval=_interval(found, resamples),
    )


def measured_bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    lowercase: bool,
    resamples: int = 0,
    tokens: str | None = None,
) -> Bleu:
    """Compute BLEU of text that is tokenised by 13a or, with `tokens`, that is tokenised already.

    Tokenised text is scored as by multi-bleu.perl, without smoothing.
    """
    from sacrebleu import BLEU

    metric = BLEU(
        lowercase=lowercase,
        tokenize="13a" if tokens is None else "none",
        smooth_method="exp" if tokens is None else "none",
        force=True,  # Changes no score; `scores` has its own warning about tokenised text.
    )
    with fixed_seed():
        found = metric.corpus_score(hypotheses, _present(references), n_bootstrap=resamples)
    signature = metric.get_signature()
    if tokens is not None:
        signature.update("tok", tokens)
    return Bleu(
        value=float(found.score),
        signature=str(signature),
        interval=_interval(found, resamples),
        precisions=tuple(found.precisions),
        brevity_penalty=found.bp,
        hypothesis_length=found.sys_len,
        reference_length=found.ref_len,
        length_ratio=found.ratio,
    )


def _present(references: References) -> Sequence[Sequence[str]]:
    # sacreBLEU accepts None for a missing reference, but its types do not allow it.
    return cast("Sequence[Sequence[str]]", references)


def _interval(found: object, resamples: int) -> Interval | None:
    if resamples < 2:  # For sacreBLEU, one resample means none.
        return None
    # sacreBLEU keeps these two under private names and only prints them.
    mean, margin = found._mean, found._ci  # type: ignore[attr-defined]
    return Interval(mean=float(mean), margin=float(margin))
