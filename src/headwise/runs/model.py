"""A run directory as a model that can be used."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from headwise.config import Config, Vocab
from headwise.data import Subwords
from headwise.errors import CheckpointError, HeadwiseError, UnsafeFileError
from headwise.model import Transformer
from headwise.runs.checkpoint import describe_weights, read_weights
from headwise.runs.checkpoints import choose
from headwise.runs.directory import RunDirectory
from headwise.runs.weights import load_weights


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model with its weights, ready to be used, and the subwords it knows."""

    model: Transformer
    config: Config
    source: Subwords
    target: Subwords
    weights: Path
    """The checkpoint, or the average of several, that the weights are from."""


def load_model(run: RunDirectory, which: str | None = None) -> TrainedModel:
    """Load "averaged", "best", "last" or a step; by default the first of these that there is."""
    config = run.config()
    source, target = run.subwords()
    weights = choose(run, which)
    try:
        vocab = Vocab(source_size=len(source), target_size=len(target))
        _check_size(run, config, vocab, weights, describe_weights(run.inside(weights)))
        model = Transformer(config.model, vocab)
    except CheckpointError:
        raise
    except HeadwiseError as error:
        raise CheckpointError(f"{run.path}: {error}") from error
    load_weights(model, read_weights(run.inside(weights)), str(weights))
    model.eval()
    return TrainedModel(model=model, config=config, source=source, target=target, weights=weights)


def check_last_checkpoint(run: RunDirectory, config: Config, vocab: Vocab) -> None:
    """Compare the config with the last checkpoint that is not damaged, before a model is built."""
    for step in reversed(run.steps()):
        weights = run.step_directory(step)
        try:
            found = describe_weights(run.inside(weights))
        except UnsafeFileError:
            raise
        except CheckpointError:
            continue
        _check_size(run, config, vocab, weights, found)
        return


def _check_size(
    run: RunDirectory, config: Config, vocab: Vocab, weights: Path, found: dict[str, Tensor]
) -> None:
    """Compare the config with the weights before a model of its size is built.

    By the number of parameters, which the file's header tells. Names and shapes are compared when
    the weights are loaded: to build the model on the device "meta" for it took 1.3 s, more than all
    the rest of loading a small one.
    """
    described = config.model.count_parameters(vocab)
    held = sum(tensor.numel() for tensor in found.values())
    if described != held:
        raise CheckpointError(
            f"{weights}: has {held:,} parameters, and {run.config_file} with the run's tokenizer "
            f"describes {described:,}: they are of different models"
        )
