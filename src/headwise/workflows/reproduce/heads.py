"""Find heads of the encoder that do what the paper's Figures 3 to 5 show.

Each figure has a measure of a head, between 0 and 1, averaged over a text:

- long distance (Figure 3): how much a token gives to one word at least `FAR` tokens away, where
  it gives no token more. A head that attends to everything a little has none of it;
- reference (Figure 4): how much a pronoun gives to the name before it that it gives most to;
- structure (Figure 5): how much a token gives to the one at a fixed distance, the same for all,
  such as the one before.

The end token, on which heads rest that have nothing to do, counts as none of these.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Figure = Literal["long distance", "reference", "structure"]

FAR = 6
_OFFSETS = (-3, -2, -1, 1, 2, 3)
"""The distances that `structure` looks at: farther ones are those of long distance."""

_FEWEST_TOKENS = 8
"""Of a sentence that has structure to show."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRONOUNS: dict[str, frozenset[str]] = {
    "en": _words(
        "he him his himself she her hers herself it its itself they them their theirs themselves "
        "who whose whom which"
    ),
    "fr": _words("il ils elle elles lui leur leurs son sa ses se qui"),
    "es": _words("él ella ellos ellas su sus se lo la le los las les quien que"),
}
"""By language, in lower case. `la` and `que` are more often other words: the measure averages.
German is missing, whose nouns are all written like names."""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence and the encoder's weights for it."""

    text: str
    tokens: tuple[str, ...]
    """As `headwise.inspect.attention.readable` has them, without the end token: a space begins a
    word."""
    weights: tuple[Tensor, ...]
    """For each layer [H, S, S], the end token last."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """A head, and how much it does of what a figure shows."""

    layer: int
    head: int
    value: float
    cases: int
    """How many tokens the value is the average of."""
    best_sentence: int
    """The number of the sentence in which it does it most."""
    offset: int | None = None
    """Of `structure`: the distance, negative to the left."""


def words_of(tokens: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return each word with its first token and the one after its last."""
    starts = [n for n, token in enumerate(tokens) if n == 0 or token.startswith(" ")]
    ends = [*starts[1:], len(tokens)]
    return [
        ("".join(tokens[start:end]).strip(), start, end)
        for start, end in zip(starts, ends, strict=True)
    ]


def names_in(sentences: Iterable[Sequence[str]]) -> frozenset[str]:
    """Return the names in a text, given the tokens of its sentences.

    A name is capitalised somewhere inside a sentence, and nowhere written in small letters.
    """
    capitalised, small = set(), set()
    for tokens in sentences:
        for number, (word, _, _) in enumerate(words_of(tokens)):
            bare = _bare(word)
            if bare[:1].islower():
                small.add(bare)
            elif number and bare[:1].isupper() and bare != "I":
                capitalised.add(bare)
    return frozenset(name for name in capitalised if name.lower() not in small)


def references(
    tokens: Sequence[str], pronouns: frozenset[str], names: frozenset[str]
) -> list[tuple[int, list[int]]]:
    """Return, for each pronoun that has a name before it, its token and those of the names."""
    found: list[tuple[int, list[int]]] = []
    before: list[int] = []
    for word, start, end in words_of(tokens):
        bare = _bare(word)
        if bare.lower() in pronouns:
            if before:
                found.append((start, list(before)))
        elif bare in names:
            before += range(start, end)
    return found


def _bare(word: str) -> str:
    """Return a word without punctuation and without what follows an apostrophe."""
    return word.strip(".,;:!?\"'()¿¡«»“”").partition("'")[0].partition("’")[0]


def rank_heads(
    figure: Figure, sentences: Sequence[Sentence], pronouns: frozenset[str] = frozenset()
) -> list[Head]:
    """Return all heads that the text has cases for, the one that does it most first."""
    sums: dict[tuple[int, int, int | None], float] = defaultdict(float)
    best: dict[tuple[int, int, int | None], tuple[float, int]] = {}
    cases, names = 0, names_in(sentence.tokens for sentence in sentences)
    for number, sentence in enumerate(sentences):
        measured = _measure(figure, sentence, pronouns, names)
        count = measured.cases
        cases += count
        for offset, layer, totals in measured.totals:
            for head, total in enumerate(totals.tolist()):
                key = (layer, head, offset)
                sums[key] += total
                if total / count > best.get(key, (-1.0, 0))[0]:
                    best[key] = (total / count, number)
    heads = [
        Head(
            layer=layer,
            head=head,
            value=total / cases,
            cases=cases,
            best_sentence=best[layer, head, offset][1],
            offset=offset,
        )
        for (layer, head, offset), total in sums.items()
    ]
    heads.sort(key=lambda each: (-each.value, each.layer, each.head))
    strongest: dict[tuple[int, int], Head] = {}  # Of a head with several distances.
    for each in heads:
        strongest.setdefault((each.layer, each.head), each)
    return list(strongest.values())


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What one sentence adds to the averages."""

    cases: int
    totals: list[tuple[int | None, int, Tensor]]
    """An offset, a layer, and the sum over the cases of each of its heads [H]."""


def _measure(
    figure: Figure, sentence: Sentence, pronouns: frozenset[str], names: frozenset[str]
) -> _Measured:
    size = len(sentence.tokens)
    layers = list(enumerate(sentence.weights))
    found: list[tuple[int | None, int, Tensor]]
    if figure == "long distance":
        is_word = torch.tensor([any(map(str.isalnum, token)) for token in sentence.tokens])
        places = torch.arange(size)
        is_far = ((places[:, None] - places).abs() >= FAR) & is_word  # [S, S]
        cases = int(is_far.any(1).sum())
        found = [(None, layer, _strongest_far(weights, is_far)) for layer, weights in layers]
        return _Measured(cases=cases, totals=found if cases else [])
    if figure == "reference":
        pairs = references(sentence.tokens, pronouns, names)
        found = [
            (None, layer, sum((w[:, query, keys].amax(1) for query, keys in pairs), torch.zeros(1)))
            for layer, w in layers
        ]
        return _Measured(cases=len(pairs), totals=found if pairs else [])
    if size < _FEWEST_TOKENS:
        return _Measured(cases=0, totals=[])
    offsets = [
        (offset, layer, weights[:, :size, :size].diagonal(offset, 1, 2).sum(1))
        for offset in _OFFSETS
        for layer, weights in layers
    ]
    return _Measured(cases=size, totals=[*offsets])


def _strongest_far(weights: Tensor, is_far: Tensor) -> Tensor:
    """Return, for each head, the sum of the far weights [H, S, S] that are the largest of a row."""
    size = len(is_far)
    far = weights[:, :size, :size].masked_fill(~is_far, 0.0).amax(2)  # [H, S]
    return far.where(far >= weights[:, :size].amax(2), 0.0).sum(1)
