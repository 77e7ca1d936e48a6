"""Trees as pictures: for the terminal, and as SVG for pages and files.

In the SVG all sizes are in pixels. Words stand along the bottom, each with its tag above it, and a
constituent stands one row above the highest of its parts. Lines are only vertical and horizontal,
and a bar lies above everything it spans, so that no line crosses another or a label.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from headwise.data.trees import Tree
from headwise.visible import IN_TEXT, visible

_WORD_SIZE, _LABEL_SIZE = 15, 12
_ROW = 34
"""From one row of labels to the next."""
_GAP, _MARGIN = 14, 12
"""Between two words, and around the picture."""
_LONGEST_WORD = 32
"""Characters of a word that are drawn. The whole of a longer one is its tooltip."""


def pretty(tree: Tree) -> str:
    """Return the tree as indented lines with box-drawing characters, to print on a terminal."""
    return "\n".join(_lines(tree, "", ""))


def _lines(tree: Tree, first: str, rest: str) -> Iterator[str]:
    """Yield a tree's lines; its label stands after `first`, what is under it after `rest`."""
    label = _shown(tree.label)
    yield f"{first}{label}" if tree.word is None else f"{first}{label} {_shown(tree.word)}"
    for number, child in enumerate(tree.children, start=1):
        if number < len(tree.children):
            yield from _lines(child, f"{rest}├─ ", f"{rest}│  ")
        else:
            yield from _lines(child, f"{rest}└─ ", f"{rest}   ")


def svg(tree: Tree) -> str:
    """Return the tree as an SVG document, which can also be put in an HTML page.

    It is drawn in the current colour, on no background, and is as wide as its words are. Labels
    and tags are numbered with `data-query`, each before what is under it, and words with
    `data-key`, for pages that show what a label attends to.
    """
    root = _layout(tree)
    drawing = _Drawing(root.row)
    drawing.add(root, _MARGIN)
    width, height = root.width + 2 * _MARGIN, (root.row + 1.65) * _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(_shown(" ".join(tree.words())))}" fill="currentColor" '
        f'font-family="system-ui, sans-serif" font-size="{_LABEL_SIZE}" text-anchor="middle">\n'
        f'<path fill="none" stroke="currentColor" stroke-opacity="0.45" '
        f'd="{"".join(drawing.lines)}"/>\n' + "\n".join(drawing.texts) + "\n</svg>\n"
    )


@dataclass(frozen=True, slots=True)
class _Box:
    """A tree with the room that it takes."""

    tree: Tree
    parts: tuple["_Box", ...]
    row: int
    """Of its label, counted from the row of tags."""
    width: float


def _layout(tree: Tree) -> _Box:
    parts = tuple(map(_layout, tree.children))
    label = _text_width(tree.label, _LABEL_SIZE)
    if tree.word is not None:
        return _Box(tree, parts, 0, max(label, _text_width(_shortened(tree.word), _WORD_SIZE)))
    row = 1 + max(part.row for part in parts)
    return _Box(tree, parts, row, max(label, _row_width(parts)))


def _row_width(boxes: Sequence[_Box]) -> float:
    return sum(box.width for box in boxes) + _GAP * (len(boxes) - 1)


class _Drawing:
    """The texts and lines of a picture, whose root stands in the row that is given."""

    def __init__(self, rows: int) -> None:
        self.texts: list[str] = []
        self.lines: list[str] = []
        self._rows = rows
        self._labels = self._words = 0
        """How many are drawn or begun."""

    def add(self, box: _Box, left: float) -> float:
        """Draw a box, and return the middle of its label."""
        baseline = self._baseline(box.row)
        tree, number = box.tree, self._labels
        self._labels += 1
        if tree.word is not None:
            middle = left + box.width / 2
            self._add_label(number, middle, baseline, tree.label, ' fill-opacity="0.7"')
            self._add_word(middle, tree.word)
            return middle
        middles = []
        half = _text_width(tree.label, _LABEL_SIZE) / 2
        first, last = left + half, left + box.width - half  # Where the label's middle may be.
        left += (box.width - _row_width(box.parts)) / 2
        for part in box.parts:
            middles.append(self.add(part, left))
            left += part.width + _GAP
        middle = max(first, min(last, (middles[0] + middles[-1]) / 2))
        self._add_label(number, middle, baseline, tree.label, ' font-weight="600"')
        bar = baseline + _ROW / 2 - _LABEL_SIZE / 3
        self.lines.append(f"M{middle:.1f} {baseline + 5:.1f}V{bar:.1f}")
        bar_from, bar_to = min(middle, middles[0]), max(middle, middles[-1])
        if bar_from < bar_to:
            self.lines.append(f"M{bar_from:.1f} {bar:.1f}H{bar_to:.1f}")
        for part, place in zip(box.parts, middles, strict=True):
            top = self._baseline(part.row) - _LABEL_SIZE
            self.lines.append(f"M{place:.1f} {bar:.1f}V{top:.1f}")
        return middle

    def _baseline(self, row: int) -> float:
        return (self._rows - row) * _ROW + 0.65 * _ROW

    def _add_label(self, number: int, middle: float, baseline: float, text: str, look: str) -> None:
        self.texts.append(
            f'<text data-query="{number}" x="{middle:.1f}" y="{baseline:.1f}"{look}>'
            f"{escape(_shown(text))}</text>"
        )

    def _add_word(self, middle: float, word: str) -> None:
        whole, short = _shown(word), _shortened(word)
        tooltip = f"<title>{escape(whole)}</title>" if short != whole else ""
        baseline = self._baseline(0) + 0.65 * _ROW
        self.texts.append(
            f'<text data-key="{self._words}" x="{middle:.1f}" y="{baseline:.1f}" '
            f'font-size="{_WORD_SIZE}">{tooltip}{escape(short)}</text>'
        )
        self._words += 1


def _shown(text: str) -> str:
    return visible(text, keep=IN_TEXT)


def _shortened(word: str) -> str:
    shown = _shown(word)
    return shown if len(shown) <= _LONGEST_WORD else f"{shown[: _LONGEST_WORD - 1]}…"


def _text_width(text: str, size: float) -> float:
    """Estimate the width of a text in a common sans-serif font, rather too wide than too narrow."""
    return size * sum(map(_letter_width, _shown(text)))


def _letter_width(letter: str) -> float:
    """Estimate the width of a letter, as a part of the font's size."""
    if unicodedata.combining(letter):
        return 0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.1
    if letter in "ijlt.,:;'|!()[]`fr-":
        return 0.4
    if letter in "WMmw%@":
        return 1.05
    return 0.8 if letter.isupper() else 0.6
