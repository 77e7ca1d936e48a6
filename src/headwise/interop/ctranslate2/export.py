"""Export a run's model to CTranslate2, and verify that it computes the same."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from headwise.data import Subwords, save_subwords
from headwise.errors import CheckpointError, ConfigError
from headwise.files import replaced_directory, write_file
from headwise.interop.ctranslate2.engine import CTranslate2Engine
from headwise.interop.ctranslate2.files import (
    VERIFICATION,
    Manifest,
    Quantization,
    library,
    seal,
)
from headwise.interop.ctranslate2.spec import count_positions, make_spec, require_expressible
from headwise.interop.ctranslate2.verification import Pair, Verification, choose_pairs, verify
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation.trained import load_model

_TOLERANCE = 1e-3
"""The largest difference of a float32 export that rounding can cause; a bug causes a larger one."""


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """What was exported, and how close it is to the model."""

    directory: Path
    weights: Path
    """The checkpoint, or the average of several, that the weights are from."""
    quantization: Quantization
    verification: Verification


def export_directory(run: RunDirectory, quantization: Quantization) -> Path:
    """Return the path of a run's export, whether it exists or not."""
    return run.exports / f"ctranslate2-{quantization}"


def export(
    run: RunDirectory,
    which: str | None = None,
    quantization: Quantization = "float32",
    *,
    pairs: Sequence[Pair] | None = None,
) -> ExportReport:
    """Write RUN/exports/ctranslate2-QUANTIZATION atomically, replacing an old one.

    `which` is a checkpoint, as for `headwise.runs.model.load_model`. The export is compared with
    the model on `pairs` of ids, by default on the run's validation text. A float32 export that
    does not compute what the model computes is an error, and is not written.
    """
    if quantization not in get_args(Quantization):
        known = ", ".join(get_args(Quantization))
        raise ConfigError(f"no quantization {quantization!r}: it is one of {known}")
    version = library().__version__
    with run.locked():
        return _export(run, which, quantization, pairs, version)


def _export(
    run: RunDirectory,
    which: str | None,
    quantization: Quantization,
    pairs: Sequence[Pair] | None,
    version: str,
) -> ExportReport:
    trained = load_model(run, which)
    model = require_expressible(trained.model)
    inputs = "given pairs"
    if not pairs:
        pairs, inputs = choose_pairs(run, model)
    spec = make_spec(model, _tokens(trained.source), _tokens(trained.target))
    spec.validate()
    spec.optimize(quantization=quantization)
    manifest = Manifest(
        quantization=quantization,
        weights=str(trained.weights.relative_to(run.path)),
        positions=count_positions(model),
        ctranslate2=version,
    )
    target = export_directory(run, quantization)
    with replaced_directory(target) as directory:
        spec.save(str(directory))
        save_subwords(directory, trained.source, trained.target)
        seal(directory, manifest)
        engine = CTranslate2Engine.load(directory)
        verification = verify(model, engine, pairs, inputs)
        if quantization == "float32" and verification.largest_difference > _TOLERANCE:
            raise CheckpointError(
                f"{target}: the export does not compute what the model computes: "
                f"log-probabilities differ by {verification.largest_difference:.2g}; "
                f"please report this, with your version of CTranslate2, {version}"
            )
        text = json.dumps(verification.to_dict(), indent=1) + "\n"
        write_file(directory / VERIFICATION, text.encode())
    return ExportReport(
        directory=target,
        weights=trained.weights,
        quantization=quantization,
        verification=verification,
    )


def _tokens(subwords: Subwords) -> list[str]:
    """Return the subwords by id; CTranslate2 identifies them by their text."""
    tokens = subwords.tokens(list(range(len(subwords))))
    assert len(set(tokens)) == len(tokens), "SentencePiece's pieces are distinct"
    return tokens
