"""Constituency trees: what brackets such as (S (NP (PRP I)) (VP (VBP agree))) say.

Files hold one tree a line, or trees over several lines. An outer bracket without a label, as in
`( (S …))`, is no part of a tree. Labels and words are separated by spaces, tabs and line ends;
any other character, a no-break space too, is part of a word. A round bracket in a word is written
-LRB- or -RRB-, and nothing else is escaped.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headwise.data.lines import raw_lines
from headwise.data.text import LineReport, decode_line
from headwise.errors import DataError

MAX_DEPTH = 200
"""Brackets within one another, that of the word included. The deepest tree of the CRAFT, GUM and
WSJ treebanks has 33. Code that follows a tree by recursion relies on it."""

MAX_WORDS = 10_000
"""Words of one tree. Without a limit, one missing bracket would turn the rest of a file, whatever
its size, into one tree in memory."""

_ADVICE = "convert the file, or leave such trees out with --lenient"

_SPACES = r" \t\n\v\f\r"
PIECE = re.compile(rf"[()]|[^(){_SPACES}]+")
"""A bracket, a label or a word."""
_UNLABELLED = re.compile(rf"\([{_SPACES}]*\(")
_NAME = re.compile(rf"[^(){_SPACES}]+")
_WORD = re.compile(rf"[^{_SPACES}]+")
_ESCAPED = re.compile("-([LR])RB-")
_WRAPPERS = frozenset({"TOP", "ROOT", "S1"})
_TRACE = "-NONE-"


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent with its parts, or a word with its part-of-speech tag.

    Readers bound the depth of a tree, so that code may follow it by recursion.
    """

    label: str
    """The constituent's label, or the word's tag."""
    children: tuple["Tree", ...] = ()
    """The parts of a constituent, from left to right; empty for a word."""
    word: str | None = None
    """The word as it is written, brackets included; None for a constituent."""

    def leaves(self) -> Iterator["Tree"]:
        """Yield the tagged words from left to right."""
        if self.word is not None:
            yield self
        for child in self.children:
            yield from child.leaves()

    def words(self) -> list[str]:
        """Return the words from left to right."""
        return [leaf.word for leaf in self.leaves() if leaf.word is not None]


@dataclass(frozen=True, slots=True)
class Constituent:
    """A bracket of a tree, as the words that it spans."""

    label: str
    start: int
    """The index of its first word."""
    end: int
    """The index after its last word."""
    depth: int
    """How many brackets are around it."""


def constituents(tree: Tree) -> Iterator[Constituent]:
    """Yield the constituents of a tree, each before its parts; tags are none."""
    yield from _constituents(tree, 0, 0)[0]


def _constituents(tree: Tree, start: int, depth: int) -> tuple[list[Constituent], int]:
    """Return the constituents of a tree that begins at a word, and the index after its last."""
    if tree.word is not None:
        return [], start + 1
    parts: list[Constituent] = []
    end = start
    for child in tree.children:
        found, end = _constituents(child, end, depth + 1)
        parts += found
    return [Constituent(tree.label, start, end, depth), *parts], end


@dataclass(frozen=True, slots=True)
class Found:
    """A tree of a file, and the line on which it begins."""

    tree: Tree
    line: int


def read_trees(
    path: Path, *, lenient: bool = False, report: LineReport | None = None
) -> Iterator[Found]:
    """Yield the trees of a file as they are: see `clean` for what training needs.

    Files ending in .gz, .xz or .zst are decompressed on the way. A malformed tree is a DataError
    that names file, line and column. With `lenient` it is left out and counted in the report; what
    follows is read from where the brackets balance, or from a line that begins with a bracket.
    """
    counts = LineReport() if report is None else report
    reader = _Reader(str(path), counts, lenient=lenient)
    for number, raw in enumerate(raw_lines(path), start=1):
        yield from reader.read_line(raw, number)
    yield from reader.end()


def read_tree(text: str) -> Tree:
    """Read the one tree that a text holds."""
    reader = _Reader("<string>", LineReport(), lenient=False)
    found: list[Found] = []
    for number, line in enumerate(text.split("\n"), start=1):
        found += reader.read_text(line, number)
    found += reader.end()
    if len(found) != 1:
        raise DataError(f"<string>: expected one tree, but there are {len(found)}")
    return found[0].tree


def write_tree(tree: Tree) -> str:
    """Return the tree on one line, as `read_tree` reads it.

    A label or word with white space, which no reader gives, is a DataError.
    """
    if not is_label(tree.label):
        raise DataError(f"{tree.label!r} is no label: it is empty, or has brackets or white space")
    if tree.word is None:
        return f"({tree.label} {' '.join(map(write_tree, tree.children))})"
    if not _WORD.fullmatch(tree.word):
        raise DataError(f"{tree.word!r} is no word of a tree: it is empty, or has white space")
    return f"({tree.label} {escape(tree.word)})"


def is_label(text: str) -> bool:
    """Return whether a text can be a label or a tag: no white space, no brackets, not empty."""
    return _NAME.fullmatch(text) is not None


def escape(word: str) -> str:
    """Return a word as it is written in a tree: -LRB- and -RRB- for round brackets."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def unescape(word: str) -> str:
    """Return a word as it is written in a text: round brackets for -LRB- and -RRB-."""
    if "RB-" not in word:
        return word
    return _ESCAPED.sub(lambda match: "(" if match[1] == "L" else ")", word)


def clean(tree: Tree) -> Tree | None:
    """Return the tree that a parser learns to give, or None if nothing is left of it.

    Function tags and co-indices are removed from the labels of constituents (NP-SBJ-1 and NP=2
    become NP), traces (-NONE-) and the constituents that they leave empty are removed, and so is
    an outermost TOP, ROOT or S1 around a single tree. Unary chains and tags stay as they are.
    """
    cleaned = _without_traces(tree)
    while cleaned is not None and cleaned.label in _WRAPPERS and len(cleaned.children) == 1:
        cleaned = cleaned.children[0]
    return cleaned


def _without_traces(tree: Tree) -> Tree | None:
    if tree.word is not None:
        return None if tree.label == _TRACE else tree
    children = tuple(c for child in tree.children if (c := _without_traces(child)) is not None)
    if not children:
        return None
    # The first character is part of the label, whatever it is.
    end = min((i for mark in "-=" if (i := tree.label.find(mark, 1)) > 0), default=None)
    return Tree(tree.label[:end], children)


class _MalformedError(Exception):
    """A bracket, label or word in the wrong place, and what was expected there."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.column = column


@dataclass(slots=True)
class _Open:
    """A bracket that is not closed yet."""

    line: int
    column: int
    label: str | None = None
    """None as long as it is not read; "" for an outermost bracket that has none."""
    word: str | None = None
    children: list[Tree] = field(default_factory=list)
    trees: list[Found] = field(default_factory=list)
    """Its children that begin a line: trees in their own right if a bracket before them is missing
    its end."""


class _Reader:
    """Build the trees of one file, line by line, in time linear in its size."""

    def __init__(self, name: str, report: LineReport, *, lenient: bool) -> None:
        self._name = name
        self._report = report
        self._lenient = lenient
        self._stack: list[_Open] = []
        self._words = 0
        self._next_start = 0
        """The first line after the tree's own that begins with a bracket; 0 if there is none."""
        self._skipped_depth: int | None = None
        """While the rest of a malformed tree is skipped: how many of its brackets are open."""

    def read_line(self, raw: bytes, number: int) -> Iterator[Found]:
        """Yield the trees that end on a line, counted from 1."""
        try:
            line = decode_line(raw, self._name, number, self._report, advice=_ADVICE)
        except DataError:
            if not self._lenient:
                raise
            yield from self._skip_line(raw.decode("utf-8", "replace"), number, 1)
            return
        yield from self.read_text(line, number)

    def read_text(self, line: str, number: int) -> Iterator[Found]:
        """Yield the trees that end on a line of text."""
        if "\0" in line:
            column = line.index("\0") + 1
            if not self._lenient:
                place = f"{self._name}:{number}:{column}"
                raise DataError(f"{place}: a NUL character, which no word has: {_ADVICE}")
            yield from self._skip_line(line, number, column)
            return
        for match in PIECE.finditer(line):
            piece, column = match[0], match.start() + 1
            if self._skipped_depth is not None and not self._resumes(piece, column):
                continue
            try:
                if column == 1 and self._stack and _UNLABELLED.match(line):
                    raise _MalformedError(number, 1, f"{self._unclosed()}, but a tree begins here")
                found = self._take(piece, number, column)
            except _MalformedError as error:
                if not self._lenient:
                    place = f"{self._name}:{error.line}:{error.column}"
                    raise DataError(f"{place}: {error}") from None
                yield from self._give_up(error.line, error.column)
                if self._resumes(piece, column):
                    self._take(piece, number, column)
            else:
                if found is not None:
                    yield self._kept(found)

    def end(self) -> Iterator[Found]:
        """Report a tree that is not closed; yield the trees that were read as parts of it."""
        if not self._stack:
            return
        root = self._stack[0]
        if not self._lenient:
            place = f"{self._name}:{root.line}:{root.column}"
            raise DataError(f"{place}: the tree that begins here has no end{self._hint()}")
        yield from self._give_up(root.line, root.column)

    def _take(self, piece: str, line: int, column: int) -> Found | None:
        """Take a bracket, label or word; return the tree that it ends."""
        if piece == "(":
            self._open(line, column)
            return None
        if not self._stack:
            raise _MalformedError(line, column, f"expected '(', found {_shown(piece)}")
        if piece == ")":
            return self._close(line, column)
        last = self._stack[-1]
        if last.label is None:
            last.label = piece
        elif last.word is None and not last.children:
            self._words += 1
            if self._words > MAX_WORDS:
                root = self._stack[0]
                reason = f"the tree that begins here has over {MAX_WORDS:,} words{self._hint()}"
                raise _MalformedError(root.line, root.column, reason)
            last.word = unescape(piece)
        else:
            expected = "'(' or ')'" if last.children else "')'"
            raise _MalformedError(line, column, f"expected {expected}, found {_shown(piece)}")
        return None

    def _open(self, line: int, column: int) -> None:
        stack = self._stack
        if not stack:
            self._words = self._next_start = 0
        else:
            last = stack[-1]
            if last.word is not None:
                raise _MalformedError(line, column, f"{self._unclosed()}, found '('")
            if last.label is None:
                if len(stack) > 1:
                    raise _MalformedError(line, column, "expected a label, found '('")
                last.label = ""
            if last.label == "" and last.children:
                reason = f"{self._unclosed()}, found '(': a bracket without a label has one tree"
                raise _MalformedError(line, column, reason)
            if len(stack) - (stack[0].label == "") == MAX_DEPTH:
                reason = f"more than {MAX_DEPTH} brackets within one another{self._hint()}"
                raise _MalformedError(line, column, reason)
            if column == 1 and not self._next_start:
                self._next_start = line
        stack.append(_Open(line, column))

    def _close(self, line: int, column: int) -> Found | None:
        last = self._stack[-1]
        if last.label is None:
            raise _MalformedError(line, column, "expected a label, found ')'")
        if last.word is None and not last.children:
            raise _MalformedError(line, column, "expected a word or '(', found ')'")
        self._stack.pop()
        tree = Tree(last.label, tuple(last.children), last.word) if last.label else last.children[0]
        if not self._stack:
            return Found(tree, last.line)
        parent = self._stack[-1]
        parent.children.append(tree)
        if last.column == 1:
            parent.trees.append(Found(tree, last.line))
        return None

    def _unclosed(self) -> str:
        last = self._stack[-1]
        return f"expected ')' to close the bracket of line {last.line}, column {last.column}"

    def _hint(self) -> str:
        if not self._next_start:
            return ": expected ')'"
        return f": expected ')' before line {self._next_start}, where another seems to begin"

    def _kept(self, found: Found) -> Found:
        self._report.pairs += 1
        self._report.kept += 1
        return found

    def _give_up(self, line: int, column: int) -> Iterator[Found]:
        """Drop what is open; yield the complete trees that were read as parts of it."""
        places = [(line, column)]
        places += [(bracket.line, 1) for bracket in self._stack[1:] if bracket.column == 1]
        for place in places:
            self._report.pairs += 1
            self._report.drop("not readable", f"{self._name}:{place[0]}:{place[1]}")
        for bracket in self._stack:
            for found in bracket.trees:
                yield self._kept(found)
        self._skipped_depth = len(self._stack)
        self._stack.clear()

    def _resumes(self, piece: str, column: int) -> bool:
        """Return whether a tree begins here, while the rest of a malformed one is skipped."""
        assert self._skipped_depth is not None
        if piece == "(":
            if column == 1 or self._skipped_depth == 0:
                self._skipped_depth = None
                return True
            self._skipped_depth += 1
        elif piece == ")":
            self._skipped_depth = max(0, self._skipped_depth - 1)
        return False

    def _skip_line(self, line: str, number: int, column: int) -> Iterator[Found]:
        """Leave out a line, and the tree that it is part of."""
        begins = line.startswith("(")
        if self._skipped_depth is None or begins:
            yield from self._give_up(number, column)
        depth = 0 if begins else self._skipped_depth or 0
        self._skipped_depth = max(0, depth + line.count("(") - line.count(")"))


def _shown(piece: str) -> str:
    return repr(piece[:30])
