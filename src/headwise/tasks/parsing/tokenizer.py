"""Sentences as token ids, trees as symbol ids, and back.

Each word is cut into subwords by itself, so that the position of its last subword is known.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from headwise.config import ParsingDataConfig, Vocab
from headwise.data import Subwords
from headwise.data.tokenizer import load_stream, load_table, save_streams
from headwise.data.trees import MAX_DEPTH, Tree, is_label
from headwise.errors import DataError
from headwise.files import Folder
from headwise.tasks.parsing.grammar import FIRST_ID, Bounds, Kind, Symbols, check
from headwise.tasks.parsing.linearise import Leaves, linearise
from headwise.tasks.parsing.repair import repair

SOURCE, TARGET = "source", "target"
"""What the streams of the tokenizer and of the shards are called."""

MOST_SUBWORDS = 50
"""Of one word. The rest of a longer one, such as a sequence of amino acids, is not read."""

_MOST_SYMBOLS = 10_000

_DEEPEST = MAX_DEPTH - 2
"""Open brackets. A word's tag, and a root that joins the parts of a long sentence, come on top."""
_LEAST_DEPTH, _LEAST_OPENS = 30, 8
_MORE_DEPTH, _MORE_OPENS = 10, 2
"""How far trees may nest beyond what training has seen."""

_CACHED_WORDS = 1 << 17


class EncodedWords(NamedTuple):
    """The words of a sentence as subwords."""

    ids: list[int]
    ends: list[int]
    """The position of each word's last subword, then that of eos."""


class TreeCounts:
    """What the trees of a treebank have in them, counted one after the other."""

    def __init__(self) -> None:
        self.symbols: Counter[str] = Counter()
        self.roots: Counter[str] = Counter()
        self.depth = self.opens = 0

    def add(self, symbols: Sequence[str]) -> None:
        """Count one tree, given as the symbols of `linearise`."""
        self.symbols.update(symbols)
        depth = opens = 0
        for symbol in symbols:
            if symbol.startswith("("):
                depth, opens = depth + 1, opens + 1
                self.depth, self.opens = max(self.depth, depth), max(self.opens, opens)
            else:
                depth, opens = depth - symbol.startswith(")"), 0
        if symbols[0].startswith("("):
            self.roots[symbols[0][1:]] += 1

    def bounds(self) -> Bounds:
        """Return how far a parser's trees may nest."""
        return Bounds(
            depth=min(_DEEPEST, max(_LEAST_DEPTH, self.depth + _MORE_DEPTH)),
            opens=min(_DEEPEST, max(_LEAST_OPENS, self.opens + _MORE_OPENS)),
        )


class TreeTokenizer:
    """Subwords for words, symbols for trees, and what trees look like."""

    def __init__(self, subwords: Subwords, symbols: Symbols, bounds: Bounds, *, root: str) -> None:
        check(symbols)
        self.subwords, self.symbols, self.bounds = subwords, symbols, bounds
        self.root = root
        """The label that joins what has no common root: that of most trees."""
        self._ids = {name: number for number, name in enumerate(symbols.names, start=FIRST_ID)}
        leaves = (kind == Kind.LEAF for kind in symbols.kinds[FIRST_ID:])
        self._tag = next(n for n, is_leaf in zip(symbols.names, leaves, strict=True) if is_leaf)
        self._word_ids = lru_cache(_CACHED_WORDS)(self._encoded_word)

    @classmethod
    def learn(
        cls,
        sentences: Iterable[str],
        counts: TreeCounts,
        data: ParsingDataConfig,
        subwords: Subwords | None = None,
    ) -> "TreeTokenizer":
        """Learn subwords from words joined by spaces, unless they are given.

        The symbols are those of the counted trees.
        """
        by_frequency = sorted(counts.symbols, key=lambda name: (-counts.symbols[name], name))
        if len(by_frequency) > _MOST_SYMBOLS:
            raise DataError(
                f"the trees have {len(by_frequency):,} different labels and tags, more than "
                f"{_MOST_SYMBOLS:,}: leave out part of what they say"
            )
        symbols = Symbols.of(by_frequency)
        check(symbols)  # Before subwords are learned, which takes longer.
        root = max(counts.roots, key=lambda label: (counts.roots[label], label))
        if subwords is None:
            subwords = Subwords.learn(sentences, data)
        return cls(subwords, symbols, counts.bounds(), root=root)

    @classmethod
    def load(cls, folder: Path | Folder) -> "TreeTokenizer":
        """Load the tokenizer of prepared data or of a run."""
        table = load_table(folder, TARGET)
        try:
            symbols, bounds, root = _read_table(table)
            return cls(load_stream(folder, SOURCE), symbols, bounds, root=root)
        except ValueError as error:
            path = Folder.of(folder).path / "tokenizer" / f"{TARGET}.json"
            raise DataError(f"{path}: {error}") from error

    def save(self, directory: Path) -> None:
        """Write the tokenizer into a directory that is being made."""
        table = {
            "symbols": self.symbols.names,
            "depth": self.bounds.depth,
            "opens": self.bounds.opens,
            "root": self.root,
        }
        save_streams(directory, {SOURCE: self.subwords}, {TARGET: table})

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of a model."""
        return Vocab(source_size=len(self.subwords), target_size=len(self.symbols))

    def encode_words(self, words: Sequence[str]) -> EncodedWords:
        """Return the subwords of a sentence, without eos."""
        ids: list[int] = []
        ends = []
        for word in words:
            ids += self._word_ids(word)
            ends.append(len(ids) - 1)
        return EncodedWords(ids, [*ends, len(ids)])

    def encode_tree(self, tree: Tree, leaves: Leaves) -> tuple[list[int], list[int]]:
        """Return the ids of a tree's symbols, and how many leaves come before each and the end.

        A symbol that no training tree has is unk.
        """
        ids, before, count = [], [0], 0
        for symbol in linearise(tree, leaves):
            ids.append(self._ids.get(symbol, Vocab.unk))
            count += not symbol.startswith(("(", ")"))
            before.append(count)
        return ids, before

    def symbol(self, number: int) -> str:
        """Return the symbol that an id stands for; that of a special id is its name."""
        special = ("<pad>", "<unk>", "<s>", "</s>")
        return special[number] if number < FIRST_ID else self.symbols.names[number - FIRST_ID]

    def tree(self, ids: Sequence[int], words: Sequence[str]) -> tuple[Tree, bool]:
        """Return the tree over the words, and whether the symbols had to be repaired for it."""
        names = [self.symbols.names[number - FIRST_ID] for number in ids if number >= FIRST_ID]
        tree, is_repaired = repair(names, words, tag=self._tag, root=self.root)
        return tree, is_repaired or len(names) < len(ids)

    def _encoded_word(self, word: str) -> list[int]:
        # No subword has so many characters that the cut could change the first ones.
        ids = self.subwords.encode(word[: 64 * MOST_SUBWORDS])
        return ids[:MOST_SUBWORDS] or [Vocab.unk]  # NFKC may leave nothing of a word.


def _read_table(table: object) -> tuple[Symbols, Bounds, str]:
    """Check what target.json holds; ValueError says what is wrong with it."""
    if not isinstance(table, Mapping) or set(table) != {"symbols", "depth", "opens", "root"}:
        raise ValueError("not a table of symbols with the bounds of trees")
    names, root = table["symbols"], table["root"]
    if not isinstance(names, list) or len(names) > _MOST_SYMBOLS:
        raise ValueError(f"its symbols are not a list of at most {_MOST_SYMBOLS:,}")
    for name in [*names, root]:
        if not isinstance(name, str) or not is_label(name.removeprefix("(").removeprefix(")")):
            raise ValueError(f"{name!r:.40} is not a symbol of trees")
    for key in ("depth", "opens"):
        if type(table[key]) is not int or not 1 <= table[key] <= _DEEPEST:
            raise ValueError(f"{key} = {table[key]!r:.40} is not a number from 1 to {_DEEPEST}")
    return Symbols.of(names), Bounds(depth=table["depth"], opens=table["opens"]), root
