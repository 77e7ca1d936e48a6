"""BLEU on a part of the validation text, while training goes on."""

from headwise.config import Config
from headwise.data import Subwords, TokenShards
from headwise.data.batches import Batches
from headwise.decoding import SearchSettings
from headwise.evaluation import bleu
from headwise.model import Transformer
from headwise.tasks.torch_engine import TorchEngine
from headwise.training.distributed import World

_GREEDY = SearchSettings(beam=1, stop="count")
"""Checkpoints are only compared with each other, and a beam would cost several times as much."""


class ValidationBleu:
    """Some validation pairs, to be translated again and again."""

    def __init__(
        self,
        batches: Batches,
        shards: TokenShards,
        target: Subwords,
        config: Config,
    ) -> None:
        self._target = target
        self._max_extra_tokens = config.decode.max_extra_tokens
        usable = sorted(int(pair) for place in batches.epoch(0) for pair in place)
        pairs = usable[: config.train.bleu_pairs]
        self._sources = [shards.sequence("source", pair).tolist() for pair in pairs]
        self._references = [
            target.decode(shards.sequence("target", pair).tolist()) for pair in pairs
        ]

    def measure(self, model: Transformer, world: World) -> float:
        """Translate the pairs' sources greedily, and return sacreBLEU's score of that."""
        score = 0.0
        if world.is_first:
            was_training = model.training
            found = TorchEngine(model).translate(self._sources, _GREEDY, self._max_extra_tokens)
            model.train(was_training)
            hypotheses = [self._target.decode(list(best.ids)) for best, *_ in found]
            score = bleu(hypotheses, [self._references]).value
        return world.largest([score])[0]
