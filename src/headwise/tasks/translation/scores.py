"""Score a translation run on a test set: translations, scores, perplexity, speed."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.evaluation import References, Scores, score
from headwise.tasks.translation.translator import Translator

_WINDOW = 512


@dataclass(frozen=True, kw_only=True)
class RunScores:
    """The results of one run."""

    run: str
    weights: str
    scores: Scores
    perplexity: float | None
    """For each token of the first reference, eos included; None if the engine cannot score."""
    sentences_per_second: float
    translations: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the translations as JSON values."""
        return {
            "run": self.run,
            "weights": self.weights,
            "scores": self.scores.to_dict(),
            "perplexity": self.perplexity,
            "sentences_per_second": self.sentences_per_second,
        }


def evaluate_translator(
    run: Path,
    translator: Translator,
    sources: Sequence[str],
    references: References,
    *,
    language: str | None = None,
    beam: int | None = None,
    alpha: float | None = None,
    on_progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> RunScores:
    """Translate the sources with a loaded run, and score them."""
    translations: list[str] = []
    start = time.perf_counter()
    for first in range(0, len(sources), _WINDOW):
        window = sources[first : first + _WINDOW]
        results = translator.translate(window, beam=beam, alpha=alpha)
        translations += [result.text for result in results]
        on_progress(f"translating with {run.name}", len(translations), len(sources))
    seconds = time.perf_counter() - start
    spoken = language or translator.config.data.target_language or "en"
    return RunScores(
        run=str(run),
        weights=translator.name,
        scores=score(translations, references, language=spoken),
        perplexity=_perplexity(translator, sources, references),
        sentences_per_second=len(sources) / seconds,
        translations=tuple(translations),
    )


def _perplexity(
    translator: Translator, sources: Sequence[str], references: References
) -> float | None:
    """Return the perplexity of the first reference of each sentence that can be scored."""
    if not translator.can_score:
        return None
    pairs = [
        (source.strip(), reference.strip())
        for source, reference in zip(sources, references[0], strict=True)
        if source.strip() and reference and reference.strip()
    ]
    fitting = [pair for pair in pairs if translator.fits(pair[0])]
    log_probs = translator.score(fitting)
    tokens = sum(translator.count_target_tokens(target) for _, target in fitting)
    return math.exp(-sum(log_probs) / tokens) if tokens else None
