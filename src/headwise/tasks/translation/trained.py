"""A translation run's model and subwords."""

from dataclasses import dataclass
from pathlib import Path

from headwise.config import Config, Vocab
from headwise.data import Subwords
from headwise.errors import CheckpointError, HeadwiseError
from headwise.model import Seq2Seq, build_model
from headwise.runs.directory import RunDirectory
from headwise.runs.model import load_trained
from headwise.tasks.table import require_task


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model with its weights, ready to be used, and the subwords it knows."""

    model: Seq2Seq
    config: Config
    source: Subwords
    target: Subwords
    weights: Path
    """The checkpoint, or the average of several, that the weights are from."""


def load_model(run: RunDirectory, which: str | None = None) -> TrainedModel:
    """Load "averaged", "best", "last" or a step; by default the first of these that there is."""
    config = run.config()
    require_task("translation", config, run.path)
    source, target = run.subwords()
    try:
        vocab = Vocab(source_size=len(source), target_size=len(target))
    except HeadwiseError as error:
        raise CheckpointError(f"{run.path}: {error}") from error
    model, weights = load_trained(
        run,
        which,
        parameters=config.model.count_parameters(vocab, "seq2seq"),
        build=lambda: build_model(config.model, vocab, "seq2seq"),
    )
    return TrainedModel(model=model, config=config, source=source, target=target, weights=weights)
