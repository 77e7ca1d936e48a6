"""Load a run as a Translator with a chosen engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from headwise.config import Vocab
from headwise.errors import CheckpointError
from headwise.interop.ctranslate2.engine import CTranslate2Engine
from headwise.interop.ctranslate2.export import export_directory
from headwise.interop.ctranslate2.groups import GroupingEngine
from headwise.interop.ctranslate2.spec import largest_file
from headwise.recipes import search_as
from headwise.runs.directory import RunDirectory
from headwise.tasks.table import require_task
from headwise.tasks.translation.translator import Translator

EngineName = Literal["torch", "ctranslate2"]
Quantization = Literal["int8", "int16", "float32"]


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
    """Load a run with torch, or its export: of the given quantization, or the smallest."""
    if engine == "torch":
        return Translator.load(
            run, checkpoint=checkpoint, device=device, batch_size=batch_size, overrides=overrides
        )
    directory = RunDirectory(run)
    require_task("translation", directory.config(), run)
    kinds: tuple[Quantization, ...] = ("int8", "int16", "float32")
    wanted = kinds if quantization is None else (quantization,)
    exports = [export_directory(directory, kind) for kind in wanted]
    there = next((path for path in exports if directory.inside(path).exists()), None)
    if there is None:
        kind = "" if quantization is None else f" --quantization {quantization}"
        raise CheckpointError(
            f"{exports[0]} does not exist: `headwise export {run} --to ctranslate2{kind}` makes it"
        )
    source, target = directory.subwords()
    config = directory.config()
    vocab = Vocab(source_size=len(source), target_size=len(target))
    exported = CTranslate2Engine.load(
        directory.inside(there), most_bytes=largest_file(config.model, vocab)
    )
    if exported.vocabulary_sizes != (len(source), len(target)):
        raise CheckpointError(f"{there}: has other subwords than the run: export it again")
    return Translator(
        GroupingEngine(exported),
        source,
        target,
        search_as(config, overrides),
        longest_source=directory.longest_source(),
        name=str(there),
    )
