"""A trained parser as a function from sentences to trees."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from headwise.config import STRONGEST_PENALTY, WIDEST_BEAM, ParsingConfig, Vocab
from headwise.data.trees import Constituent, Tree, constituents, read_tree, unescape, write_tree
from headwise.decoding import Hypothesis, SearchSettings
from headwise.errors import CheckpointError, DataError, HeadwiseError, RequestError
from headwise.model import Trace, Transformer, build_model
from headwise.recipes import search_as
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.runs.model import load_trained
from headwise.tasks.parsing.drawing import pretty, svg
from headwise.tasks.parsing.grammar import least_limit
from headwise.tasks.parsing.nltk_trees import to_nltk
from headwise.tasks.parsing.search import TreeSearch
from headwise.tasks.parsing.tokenizer import TreeTokenizer
from headwise.tasks.parsing.words import split_words
from headwise.tasks.table import require_task
from headwise.tasks.tracing import TracedPair

if TYPE_CHECKING:
    import nltk

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(r"[^ \t\n\v\f\r]+")
"""A word of tokenized text: as in files of trees, a no-break space is part of one."""

_ANY_LENGTH = 2**31


@dataclass(frozen=True, kw_only=True)
class Parse:
    """A sentence and its tree."""

    words: tuple[str, ...]
    tree: Tree | None
    """A tree over exactly the words; None if there are none."""
    log_prob: float = 0.0
    """The natural logarithm of its probability."""
    score: float = 0.0
    """The log-probability divided by the length penalty; it ranks the candidates."""
    is_repaired: bool = False
    """Whether what the model wrote was no tree over the words."""
    num_parts: int = 1
    """More than 1 if the sentence was too long for the model: each part has a tree, and they are
    joined."""
    others: tuple["Parse", ...] = ()
    """The next best parses, as many as were asked for."""

    @property
    def brackets(self) -> str:
        """The tree on one line, as files of trees have it; empty if there are no words."""
        return "" if self.tree is None else write_tree(self.tree)

    @property
    def constituents(self) -> list[Constituent]:
        """The constituents with the words that they span, each before its parts."""
        return [] if self.tree is None else list(constituents(self.tree))

    def pretty(self) -> str:
        """Return the tree as indented lines, to print on a terminal."""
        return "" if self.tree is None else pretty(self.tree)

    def svg(self) -> str:
        """Return the tree as an SVG document; empty if there are no words."""
        return "" if self.tree is None else svg(self.tree)

    def to_nltk(self) -> "nltk.Tree | None":
        """Return the tree for NLTK, which must be installed."""
        return None if self.tree is None else to_nltk(self.tree)


class Parser:
    """Parse sentences with a trained run. It is thread-safe."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: TreeTokenizer,
        config: ParsingConfig,
        *,
        longest_source: int,
        name: str,
        batch_size: int | None = None,
    ) -> None:
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, config
        self.longest_source = longest_source
        """Tokens of the longest sentence that training may have seen; longer ones are split."""
        self.name = name
        """Where the weights come from."""
        self._search = TreeSearch(self.model, tokenizer, batch_size=batch_size)

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        checkpoint: str | None = None,
        device: str = "cpu",
        batch_size: int | None = None,
        overrides: Sequence[str] = (),
    ) -> "Parser":
        """Load a run directory: its average, else its best checkpoint, else its last.

        Overrides are [decode] settings such as "decode.beam=4"; they replace the run's own. With a
        batch size of 1, a parse depends on no other sentence.
        """
        directory = RunDirectory(Path(run))
        config: ParsingConfig = directory.config()  # type: ignore[assignment]
        require_task("parsing", config, directory.path)
        try:
            tokenizer = TreeTokenizer.load(directory.folder)
            vocab = tokenizer.vocab
        except HeadwiseError as error:
            raise CheckpointError(f"{directory.path}: {error}") from error
        model, weights = load_trained(
            directory,
            checkpoint,
            parameters=config.model.count_parameters(vocab, "seq2seq"),
            build=lambda: build_model(config.model, vocab, "seq2seq"),
        )
        changed: ParsingConfig = search_as(config, overrides)  # type: ignore[arg-type,assignment]
        return cls(
            model.to(choose_device(device)),
            tokenizer,
            changed,
            longest_source=directory.longest_source(),
            name=str(weights),
            batch_size=batch_size,
        )

    def settings(
        self, *, beam: int | None = None, alpha: float | None = None, nbest: int = 1
    ) -> SearchSettings:
        """Return the run's search settings, with this call's changes."""
        decode = self.config.decode
        width = decode.beam if beam is None else beam
        if not (1 <= width <= WIDEST_BEAM and 1 <= nbest <= WIDEST_BEAM):
            raise RequestError(f"beam and nbest are at least 1 and at most {WIDEST_BEAM:,}")
        strength = decode.alpha if alpha is None else alpha
        if not 0 <= strength <= STRONGEST_PENALTY:
            raise RequestError(f"alpha = {strength} must be a number from 0 to {STRONGEST_PENALTY}")
        width = max(width, nbest)
        return SearchSettings(
            beam=width,
            alpha=strength,
            penalty=decode.penalty,
            # A beam of one is greedy search: it stops at the first eos.
            stop=decode.stop if width > 1 else "count",
            nbest=nbest,
        )

    def parse(
        self,
        sentences: str | Sequence[str],
        *,
        tokenized: bool = False,
        beam: int | None = None,
        alpha: float | None = None,
        nbest: int = 1,
        constrained: bool | None = None,
    ) -> list[Parse]:
        """Parse one sentence or several; results come in their order.

        A sentence is cut into words as in the Penn Treebank; with `tokenized`, at white space.
        """
        texts = [sentences] if isinstance(sentences, str) else sentences
        words = [self.words(text, tokenized=tokenized) for text in texts]
        return self.parse_words(words, beam=beam, alpha=alpha, nbest=nbest, constrained=constrained)

    def words(self, sentence: str, *, tokenized: bool = False) -> list[str]:
        """Return the words of a sentence, as `parse` sees them: round brackets are not escaped."""
        words: list[str] = _TOKEN.findall(sentence) if tokenized else split_words(sentence)
        return [unescape(word) for word in words]

    def count_tokens(self, sentence: str) -> int:
        """Count the subwords of a sentence, without eos."""
        return len(self.tokenizer.encode_words(self.words(sentence)).ids)

    def parse_words(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        beam: int | None = None,
        alpha: float | None = None,
        nbest: int = 1,
        constrained: bool | None = None,
    ) -> list[Parse]:
        """Parse sentences that are cut into words already."""
        settings = self.settings(beam=beam, alpha=alpha, nbest=nbest)
        decode = self.config.decode
        for words in sentences:
            _check_words(words)
        parts = [self._parts(list(words)) for words in sentences]
        found = iter(
            self._search.search(
                [part for each in parts for part in each],
                settings,
                max_extra_tokens=decode.max_extra_tokens,
                constrained=decode.constrained if constrained is None else constrained,
            )
        )
        return [self._parse(each, found) for each in parts]

    def trace(self, source: str, target: str | None = None, *, most_tokens: int) -> TracedPair:
        """Return the attention of a sentence and its tree; without a target, of the best tree.

        A target is the tree in brackets, over the words of the source.
        """
        words = self.words(source)
        _check_words(words)
        longest = min(most_tokens, self.longest_source)
        encoded = self.tokenizer.encode_words(words)
        if not 1 <= len(encoded.ids) <= longest or len(self._parts(words)) > 1:
            raise RequestError(f"give a sentence of at least 1 and at most {longest:,} tokens")
        if target is None:
            (parse,) = self.parse_words([words])
            assert parse.tree is not None
            tree = parse.tree
        else:
            tree = _target_tree(target, words)
        ids, leaves_before = self.tokenizer.encode_tree(tree, self.config.data.leaves)
        if len(ids) > self.config.model.fitting(len(ids)):
            raise RequestError(f"the target's {len(ids):,} symbols are too many for the model")
        device, trace = self.model.output.weight.device, Trace()
        aligned = None
        if self.config.model.aligned_input:
            positions = [[encoded.ends[count] for count in leaves_before]]
            aligned = torch.tensor(positions, device=device)
        with torch.inference_mode():
            self.model.hidden(
                torch.tensor([[*encoded.ids, Vocab.eos]], device=device),
                torch.tensor([[self.model.vocab.start, *ids]], device=device),
                aligned,
                trace=trace,
            )
        return TracedPair(
            source=source.strip(),
            target=write_tree(tree),
            source_tokens=tuple(self.tokenizer.subwords.tokens(encoded.ids)),
            target_tokens=tuple(self.tokenizer.symbol(number) for number in ids),
            trace=trace,
        )

    def _parts(self, words: list[str]) -> list[list[str]]:
        """Cut a sentence in halves until the model takes each; no part of one without words."""
        ahead, done = [words] if words else [], []
        while ahead:
            part = ahead.pop()
            if len(part) == 1 or self._fits(part):
                done.append(part)
                continue
            middle = len(part) // 2
            ahead += [part[middle:], part[:middle]]
        return done

    def _fits(self, words: list[str]) -> bool:
        # Each word has a token: a sentence that is far too long need not be encoded to know that.
        return (
            len(words) <= self.longest_source
            and least_limit(len(words)) <= self.config.model.fitting(_ANY_LENGTH)
            and len(self.tokenizer.encode_words(words).ids) <= self.longest_source
        )

    def _parse(self, parts: list[list[str]], found: Iterator[list[Hypothesis]]) -> Parse:
        """Make a parse of the parts of a sentence and the next of what was found for them."""
        if not parts:
            return Parse(words=(), tree=None)
        hypotheses = [next(found) for _ in parts]
        count = min(map(len, hypotheses))
        first, *others = [
            self._candidate(parts, [each[rank] for each in hypotheses]) for rank in range(count)
        ]
        return replace(first, others=tuple(others))

    def _candidate(self, parts: list[list[str]], hypotheses: list[Hypothesis]) -> Parse:
        trees, repaired = [], False
        for words, hypothesis in zip(parts, hypotheses, strict=True):
            tree, is_repaired = self.tokenizer.tree(hypothesis.ids, words)
            trees.append(tree)
            repaired = repaired or is_repaired
        return Parse(
            words=tuple(word for words in parts for word in words),
            tree=trees[0] if len(trees) == 1 else Tree(self.tokenizer.root, tuple(trees)),
            log_prob=sum(each.log_prob for each in hypotheses),
            score=sum(each.score for each in hypotheses) / len(hypotheses),
            is_repaired=repaired,
            num_parts=len(parts),
        )


def _check_words(words: Sequence[str]) -> None:
    for word in words:
        if "\0" in word:
            raise RequestError("a sentence with a NUL character cannot be parsed")
        if _HALF_PAIR.search(word):
            raise RequestError("a sentence with half of a surrogate pair is not Unicode text")
        if not _TOKEN.fullmatch(word):
            raise RequestError(f"{word!r:.40} is not a word: it is empty, or has white space")


def _target_tree(target: str, words: list[str]) -> Tree:
    try:
        tree = read_tree(target)
    except DataError as error:
        raise RequestError(f"the target is not a tree: {error}") from error
    if tree.words() != words:
        raise RequestError("the target is a tree over other words than the source has")
    return tree
