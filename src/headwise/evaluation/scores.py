"""All scores of one system's translations, with warnings."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headwise.evaluation.corpus import References
from headwise.evaluation.metrics import Bleu, ChrF, bleu, chrf
from headwise.evaluation.resampling import MOST_RESAMPLED, RESAMPLES
from headwise.evaluation.tokenised import TokenisedBleu, knows_language, tokenised_bleu

_TOKENISED_LINES = 100
"""From this many on, sentences that end in " ." suggest tokenised text: sacreBLEU's rule."""

_WITHOUT_SPACES = ("ja", "ko", "zh")


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of one system's translations against one reference or several."""

    sentences: int
    references: int
    bleu: Bleu
    """The one to publish, with its signature."""
    bleu_lowercased: Bleu
    chrf: ChrF
    tokenised: TokenisedBleu
    notes: tuple[str, ...]
    """Why some of these numbers are doubtful, a sentence each; usually empty."""

    def to_dict(self) -> dict[str, object]:
        """Return the scores as JSON values."""
        return asdict(self)


def score(
    hypotheses: Sequence[str],
    references: References,
    *,
    language: str = "en",
    resamples: int = RESAMPLES,
) -> Scores:
    """Compute all scores of detokenised translations.

    `references` holds one sequence for each reference, with None where a sentence has fewer of
    them. `language` chooses the Moses rules for the tokenised scores; sacreBLEU needs none.
    """
    notes = []
    if len(hypotheses) > MOST_RESAMPLED and resamples:
        notes.append(f"no interval: more than {MOST_RESAMPLED:,} sentences")
        resamples = 0
    tokenised_lines = sum(line.endswith(" .") for line in hypotheses)
    if tokenised_lines >= _TOKENISED_LINES:
        notes.append(
            f"{tokenised_lines:,} hypotheses end in ' .': if they are tokenised, "
            "detokenise them first"
        )
    if not knows_language(language):
        notes.append(f"Moses has no rules for {language!r}: those of English are used")
    if language in _WITHOUT_SPACES:
        notes.append(f"13a and Moses do not cut {language!r} into words: compare by chrF")
    return Scores(
        sentences=len(hypotheses),
        references=len(references),
        bleu=bleu(hypotheses, references, resamples=resamples),
        bleu_lowercased=bleu(hypotheses, references, lowercase=True),
        chrf=chrf(hypotheses, references, resamples=resamples),
        tokenised=tokenised_bleu(hypotheses, references, language=language),
        notes=tuple(notes),
    )
