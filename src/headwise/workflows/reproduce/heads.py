"""Find heads of the encoder that do what the paper's Figures 3 to 5 show.

Each figure has a measure of a head, between 0 and 1, averaged over a text:

- long distance (Figure 3): how much attention goes to words at least `FAR` tokens away;
- reference (Figure 4): how much attention pronouns give to names before them;
- structure (Figure 5): how much attention goes to the token at one distance, the same for all, such
  as the one before.

The end token, on which heads rest that have nothing to do, is left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Figure = Literal["long distance", "reference", "structure"]

FAR = 6
_FARTHEST_OFFSET = 3
"""Of the distances that `structure` looks at: farther ones are those of long distance."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRONOUNS: dict[str, frozenset[str]] = {
    "en": _words(
        "he him his himself she her hers herself it its itself they them their theirs themselves "
        "who whose whom which"
    ),
    "de": _words(
        "er ihn ihm sein seine seinen seinem seiner sie ihr ihre ihren ihrem ihrer es sich"
    ),
    "fr": _words("il ils elle elles lui leur leurs son sa ses se qui"),
    "es": _words("él ella ellos ellas su sus se lo la le los las les quien que"),
}
"""By language, in lower case. `la` and `que` are more often other words: the measure averages."""


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


def references(tokens: Sequence[str], pronouns: frozenset[str]) -> list[tuple[int, list[int]]]:
    """Return, for each pronoun that has a name before it, its token and those of the names.

    A name is a capitalised word that does not begin the sentence.
    """
    found: list[tuple[int, list[int]]] = []
    names: list[int] = []
    for number, (word, start, end) in enumerate(words_of(tokens)):
        if word.lower().strip(".,;:!?\"'") in pronouns:
            if names:
                found.append((start, list(names)))
        elif number and word[:1].isupper():
            names += range(start, end)
    return found


def rank_heads(
    figure: Figure, sentences: Sequence[Sentence], pronouns: frozenset[str] = frozenset()
) -> list[Head]:
    """Return all heads that the text has cases for, the one that does it most first."""
    sums: dict[tuple[int, int, int | None], float] = defaultdict(float)
    best: dict[tuple[int, int, int | None], tuple[float, int]] = {}
    cases = 0
    for number, sentence in enumerate(sentences):
        count, found = _measure(figure, sentence, pronouns)
        cases += count
        for key, total in found:
            sums[key] += total
            share = total / count
            if share > best.get(key, (-1.0, 0))[0]:
                best[key] = (share, number)
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


_Totals = list[tuple[tuple[int, int, int | None], float]]


def _measure(figure: Figure, sentence: Sentence, pronouns: frozenset[str]) -> tuple[int, _Totals]:
    """Return how many cases a sentence has, and each head's sum over them."""
    size = len(sentence.tokens)
    if figure == "long distance":
        pairs = [(q, k) for q in range(size) for k in range(size) if abs(q - k) >= FAR]
        return (size if pairs else 0), list(_sums(sentence, pairs, None))
    if figure == "reference":
        cases = references(sentence.tokens, pronouns)
        pairs = [(query, key) for query, keys in cases for key in keys]
        return len(cases), list(_sums(sentence, pairs, None))
    found: _Totals = []
    for offset in range(-_FARTHEST_OFFSET, _FARTHEST_OFFSET + 1):
        pairs = [(q, q + offset) for q in range(size) if 0 <= q + offset < size]
        found += _sums(sentence, pairs, offset)
    return size, found


def _sums(
    sentence: Sentence, pairs: Sequence[tuple[int, int]], offset: int | None
) -> Iterable[tuple[tuple[int, int, int | None], float]]:
    if not pairs:
        return
    queries, keys = [query for query, _ in pairs], [key for _, key in pairs]
    for layer, weights in enumerate(sentence.weights):
        for head, total in enumerate(weights[:, queries, keys].sum(1).tolist()):
            yield (layer, head, offset), total
