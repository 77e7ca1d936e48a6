"""Translation on validation pairs: perplexity of a word, and BLEU where it is asked for."""

from torch import nn

from headwise.config import Config
from headwise.data import load_subwords
from headwise.decoding import SearchSettings
from headwise.evaluation import bleu
from headwise.model import Recurrent, Transformer
from headwise.tasks.translation.torch_engine import TorchEngine
from headwise.training.distributed import World
from headwise.training.task import ValidationData
from headwise.training.window import perplexity

_GREEDY = SearchSettings(beam=1, stop="count")
"""Checkpoints are only compared with each other, and a beam would cost several times as much."""


class TranslationEvaluator:
    """Validation pairs, some of which are translated at each validation."""

    def __init__(self, data: ValidationData, config: Config) -> None:
        _, self._target = load_subwords(data.folder)
        self._max_extra_tokens = config.decode.max_extra_tokens
        usable = sorted(int(pair) for batch in data.batches.epoch(0) for pair in batch)
        references = {
            pair: self._target.decode(data.shards.sequence("target", pair).tolist())
            for pair in usable
        }
        # Words as white space parts them, and the end of each sentence, which is predicted too.
        self.words = sum(len(reference.split()) + 1 for reference in references.values())
        pairs = usable[: config.train.bleu_pairs]
        self._sources = [data.shards.sequence("source", pair).tolist() for pair in pairs]
        self._references = [references[pair] for pair in pairs]

    @property
    def score(self) -> str:
        """BLEU decides which checkpoint is best, where it is measured."""
        return "bleu"

    def measure(self, model: nn.Module, nll: float, world: World) -> dict[str, float]:
        """Return the perplexity of a word, and the BLEU of greedy translations."""
        figures = {"word_perplexity": perplexity(nll / self.words), "words": self.words}
        return {**figures, "bleu": self._bleu(model, world)} if self._sources else figures

    def _bleu(self, model: nn.Module, world: World) -> float:
        score = 0.0
        if world.is_first:
            assert isinstance(model, Transformer | Recurrent)
            was_training = model.training
            found = TorchEngine(model).translate(self._sources, _GREEDY, self._max_extra_tokens)
            model.train(was_training)
            hypotheses = [self._target.decode(list(best.ids)) for best, *_ in found]
            score = bleu(hypotheses, [self._references]).value
        return world.largest([score])[0]
