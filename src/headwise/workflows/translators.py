"""A run as a Translator, with the engine of one's choice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from headwise.decoding import Hypothesis, SearchSettings, Watcher
from headwise.errors import CheckpointError, RequestError
from headwise.interop.ctranslate2_engine import CTranslate2Engine
from headwise.interop.ctranslate2_export import export_directory
from headwise.recipes import search_as
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation import Translator

EngineName = Literal["torch", "ctranslate2"]
Quantization = Literal["int8", "int16", "float32"]


class _CTranslate2Search:
    """CTranslate2's engine as a Translator asks for translations."""

    def __init__(self, engine: CTranslate2Engine) -> None:
        self._engine = engine

    def translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        max_extra_tokens: int,
        prefixes: list[list[int]] | None = None,
        watcher: Watcher[list[Hypothesis]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search as near to our own way as CTranslate2 can: it knows no other stop than "count".

        It cannot give up a sentence either, and a watcher is told of all of them in the end.
        """
        if prefixes is not None:
            raise RequestError("a forced beginning needs the torch engine")
        results = self._engine.translate(
            sources,
            beam=settings.beam,
            alpha=settings.alpha,
            nbest=settings.nbest,
            max_extra_tokens=max_extra_tokens,
            min_length=settings.min_length,
            penalty=settings.penalty,
        )
        if watcher is not None:
            for number, hypotheses in enumerate(results):
                watcher.done(number, hypotheses)
        return results

    def token_log_probs(self, pairs: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of each target, then that of its end."""
        return self._engine.score([source for source, _ in pairs], [target for _, target in pairs])


def load_translator(
    run: Path,
    *,
    engine: EngineName = "torch",
    quantization: Quantization | None = None,
    checkpoint: str | None = None,
    device: str = "cpu",
    batch_size: int | None = None,
    overrides: Sequence[str] = (),
) -> Translator:
    """Load a run, or its export: of the quantization given, or the smallest there is."""
    if engine == "torch":
        return Translator.load(
            run, checkpoint=checkpoint, device=device, batch_size=batch_size, overrides=overrides
        )
    directory = RunDirectory(run)
    kinds: tuple[Quantization, ...] = ("int8", "int16", "float32")
    wanted = kinds if quantization is None else (quantization,)
    exports = [export_directory(directory, kind) for kind in wanted]
    there = next((path for path in exports if path.is_dir()), None)
    if there is None:
        raise CheckpointError(
            f"{exports[0]} does not exist: `headwise export {run} --to ctranslate2` makes it"
        )
    source, target = directory.subwords()
    return Translator(
        _CTranslate2Search(CTranslate2Engine.load(there)),
        source,
        target,
        search_as(directory.config(), overrides),
        longest_source=directory.longest_source(),
        name=str(there),
    )
