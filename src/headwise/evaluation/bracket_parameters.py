"""What EVALB leaves out and takes for equal: the parameters of COLLINS.prm, or those of a file."""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from headwise.data.text import read_lines
from headwise.data.trees import unescape
from headwise.errors import DataError

_ONE_VALUE = ("DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL")
_TWO_VALUES = ("EQ_LABEL", "EQ_WORD")
_NUMBERS = ("LABELED", "CUTOFF_LEN")
_WITHOUT_EFFECT = ("DEBUG", "MAX_ERROR")
"""How much EVALB prints and when it gives up: every sentence is scored here."""

_MOST_DIGITS = 9


@dataclass(frozen=True, kw_only=True)
class BracketParameters:
    """The rules by which brackets are compared; EVALB's name of each is in capitals."""

    labelled: bool = True
    """Whether matching brackets have the same label, not only the same words (LABELED)."""
    cutoff: int = 40
    """The length up to which a sentence is among the short ones (CUTOFF_LEN)."""
    deleted: frozenset[str] = frozenset()
    """Tags whose words are left out, and labels whose brackets are left out (DELETE_LABEL)."""
    deleted_for_length: frozenset[str] = frozenset()
    """Tags whose words do not count for a sentence's length (DELETE_LABEL_FOR_LENGTH)."""
    quote_labels: frozenset[str] = frozenset()
    """Tags that parsers give to quotes: if only one side's quote is left out because of its tag,
    it is put back (QUOTE_LABEL)."""
    equal_labels: frozenset[tuple[str, str]] = frozenset()
    """Labels and tags that count as the same, in both directions (EQ_LABEL)."""
    equal_words: frozenset[tuple[str, str]] = frozenset()
    """Words that count as the same, in both directions (EQ_WORD)."""

    def same_label(self, one: str, other: str) -> bool:
        """Return whether two labels or tags count as the same."""
        return one == other or _has_pair(self.equal_labels, one, other)

    def same_word(self, one: str, other: str) -> bool:
        """Return whether two words count as the same."""
        return one == other or _has_pair(self.equal_words, one, other)

    @cached_property
    def deleted_brackets(self) -> frozenset[str]:
        """The labels whose brackets are left out: unlike tags, with those that equal them."""
        pairs = [*self.equal_labels, *((two, one) for one, two in self.equal_labels)]
        return self.deleted | {two for one, two in pairs if one in self.deleted}


def _has_pair(pairs: frozenset[tuple[str, str]], one: str, other: str) -> bool:
    return (one, other) in pairs or (other, one) in pairs


COLLINS = BracketParameters(
    deleted=frozenset(["TOP", "-NONE-", ",", ":", "``", "''", "."]),
    deleted_for_length=frozenset(["-NONE-"]),
    equal_labels=frozenset([("ADVP", "PRT")]),
)
"""The rules of EVALB's COLLINS.prm, by which published scores of English are computed."""


def read_parameters(path: Path) -> BracketParameters:
    """Read a parameter file of EVALB: a keyword and its value on each line, # before comments.

    A file starts from nothing: what it does not delete is not deleted.
    """
    values: dict[str, list[tuple[str, ...]]] = {
        name: [] for name in (*_ONE_VALUE, *_TWO_VALUES, *_NUMBERS, *_WITHOUT_EFFECT)
    }
    for number, line in enumerate(read_lines(path), start=1):
        keyword, *found = line.split() or ["#"]
        if keyword.startswith("#"):
            continue
        place = f"{path}:{number}"
        if keyword not in values:
            near = get_close_matches(keyword, values, n=1)
            raise DataError(
                f"{place}: unknown keyword {keyword!r}: "
                + (f"did you mean {near[0]}?" if near else f"known are {', '.join(values)}")
            )
        _check_values(keyword, found, place)
        values[keyword].append(tuple(found))
    return BracketParameters(
        labelled=_last_number(values["LABELED"], default=1) != 0,
        cutoff=_last_number(values["CUTOFF_LEN"], default=BracketParameters.cutoff),
        deleted=_labels(values["DELETE_LABEL"]),
        deleted_for_length=_labels(values["DELETE_LABEL_FOR_LENGTH"]),
        quote_labels=_labels(values["QUOTE_LABEL"]),
        equal_labels=_pairs(values["EQ_LABEL"]),
        equal_words=_pairs([tuple(map(unescape, row)) for row in values["EQ_WORD"]]),
    )


def _check_values(keyword: str, found: list[str], place: str) -> None:
    expected = 2 if keyword in _TWO_VALUES else 1
    if len(found) != expected:
        raise DataError(
            f"{place}: {keyword} takes {expected} value{'s'[: expected - 1]}, not {len(found)}"
        )
    if keyword in _NUMBERS:
        (text,) = found
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            raise DataError(f"{place}: {keyword} takes a number from 0, not {text!r}")
        if keyword == "LABELED" and int(text) > 1:
            raise DataError(f"{place}: LABELED is 1, or 0 for unlabelled brackets, not {text}")


def _last_number(rows: list[tuple[str, ...]], *, default: int) -> int:
    return int(rows[-1][0]) if rows else default


def _labels(rows: list[tuple[str, ...]]) -> frozenset[str]:
    return frozenset(row[0] for row in rows)


def _pairs(rows: list[tuple[str, ...]]) -> frozenset[tuple[str, str]]:
    return frozenset((row[0], row[1]) for row in rows)
