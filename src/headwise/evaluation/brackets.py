"""One sentence's brackets against those of the gold tree, by EVALB's rules.

A sentence has one tree, or several if the parser found no root. Words with certain tags are deleted
(punctuation, traces), and so are brackets that have no words left. A label ends before its first
hyphen or equals sign: NP-SBJ is NP, and -X- is a bracket without a label. Tags are not cut. A
bracket matches one of the other side with the same words and label; each matches once.

If the two sides have different words, the sentence is an error; if the test side has none, it is
skipped. Neither counts in any score.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from headwise.data.trees import Tree
from headwise.evaluation.bracket_parameters import COLLINS, BracketParameters

Status = Literal["ok", "error", "skip"]

_TAIL = re.compile("[-=].*", re.DOTALL)
"""Function tags and indices."""

_QUOTES = ("'", '"', "/")
"""The words that parsers tag in many ways."""

_MOST_QUOTES = 20
"""For how many quotes of a sentence EVALB has room; more of them overwrite its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceScore:
    """What one line of EVALB's table says."""

    length: int
    """The gold tree's words with punctuation, without traces."""
    status: Status = "ok"
    matched: int = 0
    gold: int = 0
    """The gold tree's brackets, without deleted ones."""
    test: int = 0
    crossing: int = 0
    """The test tree's brackets that cross one of the gold tree."""
    words: int = 0
    """The words that were compared."""
    correct_tags: int = 0
    reason: str = ""
    """Why it is not scored."""

    @property
    def recall(self) -> float:
        """The percentage of gold brackets that were found."""
        return percentage(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """The percentage of test brackets that are right."""
        return percentage(self.matched, self.test)

    @property
    def tagging_accuracy(self) -> float:
        """The percentage of words with the right tag."""
        return percentage(self.correct_tags, self.words)

    @property
    def is_complete(self) -> bool:
        """Whether both sides have the same brackets."""
        return self.matched == self.gold == self.test

    def to_dict(self) -> dict[str, object]:
        """Return counts and percentages as JSON values."""
        return {
            **asdict(self),
            "recall": self.recall,
            "precision": self.precision,
            "tagging_accuracy": self.tagging_accuracy,
        }


@dataclass(slots=True)
class LabelCounts:
    """Brackets by label; a match counts under the label that it has on each side."""

    gold: Counter[str] = field(default_factory=Counter)
    test: Counter[str] = field(default_factory=Counter)
    matched_gold: Counter[str] = field(default_factory=Counter)
    matched_test: Counter[str] = field(default_factory=Counter)


def percentage(part: float, whole: float) -> float:
    """Return a part as a percentage; 0 of nothing, as in EVALB."""
    return 100 * part / whole if whole else 0.0


def score_sentence(
    gold: Sequence[Tree],
    test: Sequence[Tree],
    parameters: BracketParameters = COLLINS,
    *,
    labels: LabelCounts | None = None,
) -> SentenceScore:
    """Compare the trees of one sentence; add its brackets to `labels` if it is scored."""
    gold_side, test_side = _side(gold, parameters), _side(test, parameters)
    length = gold_side.length
    if not test_side.words:
        return SentenceScore(length=length, status="skip", reason="no words in test")
    if len(gold_side.words) != len(test_side.words) and gold_side.quotes and test_side.quotes:
        gold_again, test_again = _quotes_to_put_back(gold_side.quotes, test_side.quotes)
        gold_side = _side(gold, parameters, gold_again)
        test_side = _side(test, parameters, test_again)
    if reason := _difference(gold_side.words, test_side.words, parameters):
        return SentenceScore(length=length, status="error", reason=reason)

    matches = _matches(gold_side.brackets, test_side.brackets, parameters)
    if labels is not None:
        labels.gold.update(label for _, label in gold_side.brackets)
        labels.test.update(label for _, label in test_side.brackets)
        labels.matched_gold.update(one for one, _ in matches)
        labels.matched_test.update(other for _, other in matches)
    return SentenceScore(
        length=length,
        matched=len(matches),
        gold=len(gold_side.brackets),
        test=len(test_side.brackets),
        crossing=_crossing(gold_side, test_side),
        words=len(gold_side.words),
        correct_tags=sum(map(parameters.same_label, gold_side.tags, test_side.tags)),
    )


Span = tuple[int, int]


@dataclass(slots=True)
class _Quote:
    """A quote with one of the tags that parsers confuse."""

    leaf: int
    """Which leaf of the sentence it is."""
    index: int
    """How many words that are not deleted stand before it."""
    is_deleted: bool


@dataclass(slots=True)
class _Side:
    """What is compared of one side's trees."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    brackets: list[tuple[Span, str]] = field(default_factory=list)
    """Spans of words, and labels without function tags; inner brackets before outer ones."""
    length: int = 0
    quotes: list[_Quote] = field(default_factory=list)


def _side(
    trees: Iterable[Tree], parameters: BracketParameters, again: Counter[int] | None = None
) -> _Side:
    """Collect words and brackets; `again` says how often to put a deleted leaf back."""
    side = _Side()
    words, tags, brackets = side.words, side.tags, side.brackets
    deleted, deleted_brackets = parameters.deleted, parameters.deleted_brackets
    deleted_for_length, quote_labels = parameters.deleted_for_length, parameters.quote_labels
    leaves = 0

    def visit(tree: Tree) -> None:
        nonlocal leaves
        label, word = tree.label, tree.word
        if word is not None:
            if label not in deleted_for_length:
                side.length += 1
            is_deleted = label in deleted
            if label in quote_labels and word in _QUOTES:
                side.quotes.append(_Quote(leaves, len(words), is_deleted))
            times = 1 if not is_deleted else again[leaves] if again else 0
            words.extend([word] * times)
            tags.extend([label] * times)
            leaves += 1
            return
        start = len(words)
        for child in tree.children:
            visit(child)
        if len(words) > start:
            if "-" in label or "=" in label:
                label = _TAIL.sub("", label)
            if label not in deleted_brackets:
                brackets.append(((start, len(words)), label))

    for tree in trees:
        visit(tree)
    return side


def _quotes_to_put_back(
    gold: list[_Quote], test: list[_Quote]
) -> tuple[Counter[int], Counter[int]]:
    """Return how often to put back each deleted quote, because the other side keeps its own.

    Of two adjacent quotes, EVALB puts the first back twice: then it is found in the place of the
    second. So do we.
    """
    again_gold: Counter[int] = Counter()
    again_test: Counter[int] = Counter()
    gold, test = gold[:_MOST_QUOTES], test[:_MOST_QUOTES]
    for place, one in enumerate(test):
        index = one.index
        for other_place, other in enumerate(gold):
            if other.index != index or other.is_deleted == one.is_deleted:
                continue
            if other.is_deleted:
                again_gold[other.leaf] += 1
                shifted = gold[other_place:]
            else:
                again_test[one.leaf] += 1
                shifted = test[place:]
            for quote in shifted:
                quote.index += 1
    return again_gold, again_test


def _difference(gold: list[str], test: list[str], parameters: BracketParameters) -> str:
    """Say how two sides' words differ; empty if they do not."""
    if len(gold) != len(test):
        return f"the number of words differs: {len(gold):,} in gold, {len(test):,} in test"
    if gold == test:
        return ""
    for number, (one, other) in enumerate(zip(gold, test, strict=True), start=1):
        if not parameters.same_word(one, other):
            return f"word {number:,} differs: {one!r} in gold, {other!r} in test"
    return ""


def _matches(
    gold: list[tuple[Span, str]], test: list[tuple[Span, str]], parameters: BracketParameters
) -> list[tuple[str, str]]:
    """Pair brackets over the same words; return the label that each pair has on either side."""
    unmatched: defaultdict[Span, list[str]] = defaultdict(list)
    for span, label in reversed(test):
        unmatched[span].append(label)
    matches = []
    for span, label in reversed(gold):  # Outer brackets first: EQ_LABEL need not be transitive.
        others = unmatched.get(span, [])
        for place, other in enumerate(others):
            if not parameters.labelled or parameters.same_label(label, other):
                matches.append((label, other))
                del others[place]
                break
    return matches


def _crossing(gold: _Side, test: _Side) -> int:
    """Count the test brackets that overlap with a gold bracket, neither inside the other."""
    size = len(gold.words)
    # The widest gold brackets that end and that start at each place between words.
    first_start, last_end = list(range(size + 1)), list(range(size + 1))
    for (start, end), _ in gold.brackets:
        first_start[end] = min(first_start[end], start)
        last_end[start] = max(last_end[start], end)
    return sum(
        end - start > 1
        and (min(first_start[start + 1 : end]) < start or max(last_end[start + 1 : end]) > end)
        for (start, end), _ in test.brackets
    )
