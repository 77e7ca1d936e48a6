"""Evaluate runs on a test set, and compare them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import ConfigError
from headwise.evaluation import Comparison, References, compare
from headwise.tasks.translation.scores import RunScores, evaluate_translator
from headwise.workflows.translators import EngineName, Quantization, load_translator


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The results of several runs on the same sentences."""

    runs: tuple[RunScores, ...]
    comparison: Comparison | None
    """The paired test of the others against the first, if there are several runs."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "runs": [run.to_dict() for run in self.runs],
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
        }


def evaluate(
    runs: Sequence[Path],
    sources: Sequence[str],
    references: References,
    *,
    language: str | None = None,
    checkpoint: str | None = None,
    engine: EngineName = "torch",
    quantization: Quantization | None = None,
    beam: int | None = None,
    alpha: float | None = None,
    overrides: Sequence[str] = (),
    on_progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> Evaluation:
    """Translate the sources with each run and score them against the references."""
    if not sources:
        raise ConfigError("there is nothing to evaluate on: the source text is empty")
    found = []
    for run in runs:
        translator = load_translator(
            run,
            engine=engine,
            quantization=quantization,
            checkpoint=checkpoint,
            overrides=overrides,
        )
        found.append(
            evaluate_translator(
                run,
                translator,
                sources,
                references,
                language=language,
                beam=beam,
                alpha=alpha,
                on_progress=on_progress,
            )
        )
    comparison = None
    if len(found) > 1:
        systems = [(result.run, list(result.translations)) for result in found]
        comparison = compare(systems, references)
    return Evaluation(runs=tuple(found), comparison=comparison)
