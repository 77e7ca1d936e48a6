"""A run as a Translator, with the engine of one's choice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from headwise.errors import CheckpointError
from headwise.interop.ctranslate2_engine import CTranslate2Engine
from headwise.interop.ctranslate2_export import export_directory
from headwise.interop.ctranslate2_groups import GroupingEngine
from headwise.recipes import search_as
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation import Translator

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
        kind = "" if quantization is None else f" --quantization {quantization}"
        raise CheckpointError(
            f"{exports[0]} does not exist: `headwise export {run} --to ctranslate2{kind}` makes it"
        )
    source, target = directory.subwords()
    return Translator(
        GroupingEngine(CTranslate2Engine.load(there)),
        source,
        target,
        search_as(directory.config(), overrides),
        longest_source=directory.longest_source(),
        name=str(there),
    )
