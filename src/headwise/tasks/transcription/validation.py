"""Transcriptions of validation examples: character error rate of greedy search."""

import math

from torch import nn

from headwise.config import AnyConfig
from headwise.data.text import plain
from headwise.decoding import SearchSettings
from headwise.errors import DataError
from headwise.evaluation import score_texts
from headwise.model import Transformer
from headwise.tasks.encoders import InputKind
from headwise.tasks.transcription.prepare import notes
from headwise.tasks.transcription.search import search_texts
from headwise.tasks.transcription.targets import STREAM, load_targets
from headwise.training.distributed import World
from headwise.training.task import ValidationData

_GREEDY = SearchSettings(beam=1, stop="count")
"""Checkpoints are only compared with each other, and a beam would cost several times as much."""


class TranscriptionEvaluator:
    """Validation examples, some of which are transcribed at each validation."""

    def __init__(self, data: ValidationData, config: AnyConfig, kind: InputKind) -> None:
        for key, value in notes(config.data, kind).items():
            if data.shards.notes.get(key) != value:
                raise DataError(
                    f"{data.shards.directory}: not prepared with data.{key} = {value!r}: "
                    "prepare it anew, or give the value that it was prepared with"
                )
        self._max_extra_tokens = config.decode.max_extra_tokens
        self._targets = load_targets(data.folder, config.data)
        usable = sorted(int(number) for batch in data.batches.epoch(0) for number in batch)
        chosen = usable[: config.data.cer_examples]
        self._sources = [data.shards.sequence(kind.stream, number) for number in chosen]
        self._references = [
            self._targets.decode(
                data.shards.checked_sequence(STREAM, number, len(self._targets)).tolist()
            )
            for number in chosen
        ]

    @property
    def score(self) -> str:
        """100 less the character error rate decides which checkpoint is best."""
        return "character_accuracy"

    def measure(self, model: nn.Module, nll: float, world: World) -> dict[str, float]:
        """Return the error rate and the share that is exactly right, in percent."""
        if not self._sources:
            return {}
        figures = [-math.inf, -math.inf]
        if world.is_first:
            assert isinstance(model, Transformer)
            was_training = model.training
            figures = self._figures(model.eval())
            model.train(was_training)
        accuracy, exact = world.largest(figures)
        return {"character_accuracy": accuracy, "exact": exact}

    def _figures(self, model: Transformer) -> list[float]:
        found = search_texts(model, self._sources, _GREEDY, max_extra_tokens=self._max_extra_tokens)
        texts = [plain(self._targets.decode(list(best.ids))) for best, *_ in found]
        errors = score_texts(self._references, texts, resamples=0)
        return [100 * (1 - errors.characters.rate), 100 * errors.exact]
