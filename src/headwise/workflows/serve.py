"""Runs as models that are served, each with a card that says what it is."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headwise.config import AnyConfig, ModelConfig, RecurrentConfig, Vocab
from headwise.errors import CheckpointError, ConfigError
from headwise.paper import compare_with_paper
from headwise.runs.directory import RunDirectory
from headwise.runs.metrics import iterate_metrics
from headwise.serving.compute import ComputeThread
from headwise.serving.models import ServedModel
from headwise.serving.task_api import ServedTask, TaskModel
from headwise.serving.workers import Workers
from headwise.tasks.table import served_task
from headwise.tasks.translation.translator import Translator
from headwise.workflows.translators import EngineName, Quantization, load_translator

_LONGEST_NAME = 100
_MOST_SCORES_BYTES = 1 << 20


def load_served(
    runs: Sequence[Path],
    *,
    engine: EngineName = "torch",
    quantization: Quantization | None = None,
    checkpoint: str | None = None,
    device: str = "cpu",
) -> list[ServedModel | TaskModel]:
    """Load runs to be served, each under the name of its directory."""
    models: list[ServedModel | TaskModel] = []
    for run in runs:
        config = RunDirectory(run).config()
        if config.task != "translation":
            if engine != "torch":
                raise ConfigError(f"{run}: runs of the task {config.task} are served by torch")
            models.append(_load_other(run, config, checkpoint, device))
            continue
        translator = load_translator(
            run, engine=engine, quantization=quantization, checkpoint=checkpoint, device=device
        )
        name = printable_name(run.resolve().name)
        card = model_card(RunDirectory(run), translator, engine)
        models.append(ServedModel(name=name, translator=translator, card=card))
    return models


def _load_other(run: Path, config: AnyConfig, checkpoint: str | None, device: str) -> TaskModel:
    """Load a run of another task than translation."""
    served: ServedTask = served_task(config)
    directory = RunDirectory(run)
    experiment, departures = compare_with_paper(config)
    return TaskModel(
        name=printable_name(run.resolve().name),
        task=config.task,
        served=served,
        predictor=served.load(run, checkpoint, device),
        card={
            "training": _training(directory),
            "nearest_experiment": experiment.title,
            "departures": [str(departure) for departure in departures],
        },
    )


def printable_name(name: str) -> str:
    """Return a directory's name as logs, metrics and JSON can hold it.

    A name may have line ends, and bytes that are not UTF-8: they are surrogates in a str, which
    cannot be encoded.
    """
    short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in short)


@contextmanager
def searched_by_workers(
    models: Sequence[ServedModel | TaskModel], count: int, compute: ComputeThread
) -> Iterator[list[ServedModel | TaskModel]]:
    """Let so many processes search with the translation models, while the block runs."""
    # Attention and the like, still computed in this process, must not take the workers' cores.
    compute.call(lambda: torch.set_num_threads(1))
    searched = {m.name: m.translator.model for m in models if isinstance(m, ServedModel)}
    with Workers(count, searched) as workers:
        yield [
            replace(model, workers=workers) if isinstance(model, ServedModel) else model
            for model in models
        ]


def model_card(run: RunDirectory, translator: Translator, engine: EngineName) -> dict[str, Any]:
    """Say what a model is: its recipe, its size, how it was trained and scored, its departures."""
    config = translator.config
    source, target = run.subwords()
    vocab = Vocab(source_size=len(source), target_size=len(target))
    experiment, departures = compare_with_paper(config)
    model = config.model
    return {
        "engine": engine,
        "weights": Path(translator.name).name,
        "parameters": model.count_parameters(vocab),
        "vocabulary": len(target),
        "recipe": {
            **_sizes(model),
            "beam": config.decode.beam,
            "alpha": config.decode.alpha,
        },
        "longest_source": translator.longest_source,
        "training": _training(run),
        "test": _test(run),
        "nearest_experiment": experiment.title,
        "departures": [str(departure) for departure in departures],
    }


def _sizes(model: ModelConfig | RecurrentConfig) -> dict[str, Any]:
    layers = {"layers": model.num_layers, "decoder_layers": model.num_decoder_layers}
    if isinstance(model, RecurrentConfig):
        return {
            **layers,
            "d_model": model.d_model,
            "cell": model.cell,
            "attention": model.attention,
        }
    return {
        **layers,
        "heads": model.num_heads,
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "norm_order": model.norm_order,
        "positions": model.positions,
    }


def _training(run: RunDirectory) -> dict[str, Any]:
    """Return how far training came and how it scored, where the run says so."""
    found: dict[str, Any] = {}
    if not run.folder.has(run.metrics_file.name):
        return found  # A run that was only given its weights has no metrics.
    for line in iterate_metrics(run.metrics_file):
        found["steps"] = line["step"]
        if _is_finite(line.get("minutes")):
            found["minutes"] = round(line["minutes"], 1)
        if line["kind"] == "valid":
            for key in ("perplexity", "bleu"):
                if _is_finite(line.get(key)):
                    found[key] = line[key]
    return found


def _is_finite(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _test(run: RunDirectory) -> dict[str, Any]:
    """Return how the model scored on its test text, where the run says so."""
    try:
        kept = run.folder.read_json(run.scores_file.name, _MOST_SCORES_BYTES)
        found = {"sentences": kept["sentences"], "bleu": kept["bleu"]["value"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{run.scores_file}: damaged: remove it, or make it anew: {error}"
        ) from error
    return found if all(map(_is_finite, found.values())) else {}
