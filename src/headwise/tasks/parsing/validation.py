"""Parses of validation trees: bracket F1 of greedy search."""

from torch import nn

from headwise.config import ParsingConfig
from headwise.data.trees import Tree
from headwise.decoding import SearchSettings
from headwise.evaluation import TreeLine, score_trees
from headwise.model import Transformer
from headwise.tasks.parsing.prepare import stored_tree
from headwise.tasks.parsing.scores import comparable
from headwise.tasks.parsing.search import TreeSearch
from headwise.tasks.parsing.tokenizer import TreeTokenizer
from headwise.training.distributed import World
from headwise.training.task import ValidationData

_GREEDY = SearchSettings(beam=1, stop="count")
"""Checkpoints are only compared with each other, and a beam would cost several times as much."""


class TreeEvaluator:
    """Validation trees, some of which are parsed at each validation."""

    def __init__(self, data: ValidationData, config: ParsingConfig) -> None:
        self._decode = config.decode
        self._has_tags = config.data.leaves == "tags"
        self._tokenizer = TreeTokenizer.load(data.folder)
        usable = sorted(int(number) for batch in data.batches.epoch(0) for number in batch)
        self._gold: list[Tree] = [
            stored_tree(data.shards, number) for number in usable[: config.data.f1_trees]
        ]

    @property
    def score(self) -> str:
        """F1 decides which checkpoint is best, where it is measured."""
        return "f1"

    def measure(self, model: nn.Module, nll: float, world: World) -> dict[str, float]:
        """Return F1 and tagging accuracy of the first trees, in percent."""
        if not self._gold:
            return {}
        figures = [0.0, 0.0]
        if world.is_first:
            assert isinstance(model, Transformer)
            was_training = model.training
            figures = self._figures(model.eval())
            model.train(was_training)
        f1, accuracy = world.largest(figures)
        return {"f1": f1, "tagging_accuracy": accuracy} if self._has_tags else {"f1": f1}

    def _figures(self, model: Transformer) -> list[float]:
        sentences = [tree.words() for tree in self._gold]
        found = TreeSearch(model, self._tokenizer).search(
            sentences,
            _GREEDY,
            max_extra_tokens=self._decode.max_extra_tokens,
            constrained=self._decode.constrained,
        )
        pairs = []
        for gold, words, (best, *_) in zip(self._gold, sentences, found, strict=True):
            tree, _ = self._tokenizer.tree(best.ids, words)
            tree = comparable(tree, gold, has_tags=self._has_tags)
            pairs.append((TreeLine((gold,)), TreeLine((tree,))))
        overall = score_trees(pairs, resamples=0).overall
        return [overall.f1, overall.tagging_accuracy]
