"""Strategies for damaged input: valid content, changed in a few places.

Random bytes rarely get past the first check of a parser. What is valid but for a few places does.
"""

import copy
import json
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

EXTREMES = sorted(
    {0, 1, -1, 2, 100, 1000, 10**6, 10**30}
    | {sign * 2**bits + step for bits in (7, 8, 15, 16, 31, 32, 53, 63, 64) for step in (-1, 0, 1)
       for sign in (1, -1)}
)  # fmt: skip
"""Numbers at the edges of what types hold."""

_NUMBER = re.compile(rb"\d+")


@st.composite
def mutated(draw: Draw, valid: bytes, most: int = 4) -> bytes:
    """Bytes that differ from valid ones in one to `most` ways."""
    content = valid
    for _ in range(draw(st.integers(1, most))):
        content = draw(st.sampled_from(_CHANGES))(draw, content)
    return content


def _slice(draw: Draw, content: bytes) -> tuple[int, int]:
    start = draw(st.integers(0, len(content)))
    return start, min(len(content), start + draw(st.integers(0, 64)))


def _flip_bit(draw: Draw, content: bytes) -> bytes:
    if not content:
        return content
    place, bit = draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 7))
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


def _truncate(draw: Draw, content: bytes) -> bytes:
    end: int = draw(st.integers(0, len(content)))
    return content[:end]


def _remove(draw: Draw, content: bytes) -> bytes:
    start, end = _slice(draw, content)
    return content[:start] + content[end:]


def _repeat(draw: Draw, content: bytes) -> bytes:
    start, end = _slice(draw, content)
    times: int = draw(st.sampled_from([2, 3, 100]))
    return content[:start] + content[start:end] * times + content[end:]


def _move(draw: Draw, content: bytes) -> bytes:
    start, end = _slice(draw, content)
    rest = content[:start] + content[end:]
    place = draw(st.integers(0, len(rest)))
    return rest[:place] + content[start:end] + rest[place:]


def _insert(draw: Draw, content: bytes) -> bytes:
    place, inserted = draw(st.integers(0, len(content))), bytes(draw(st.binary(max_size=16)))
    return content[:place] + inserted + content[place:]


def _replace_number(draw: Draw, content: bytes) -> bytes:
    found = list(_NUMBER.finditer(content))
    if not found:
        return content
    match = draw(st.sampled_from(found))
    number = str(draw(st.sampled_from(EXTREMES))).encode()
    return content[: match.start()] + number + content[match.end() :]


def _overwrite_word(draw: Draw, content: bytes) -> bytes:
    place = draw(st.integers(0, len(content)))
    kind = draw(st.sampled_from("HIQ"))
    bits = 8 * struct.calcsize(f"<{kind}")
    word = struct.pack(f"<{kind}", draw(st.sampled_from(EXTREMES)) % 2**bits)
    return content[:place] + word + content[place + len(word) :]


_CHANGES = [
    _flip_bit,
    _truncate,
    _remove,
    _repeat,
    _move,
    _insert,
    _replace_number,
    _overwrite_word,
]


ODD_TEXTS = ["", "\0", "\ud800", "../../etc/passwd", "/", "x" * 10_000, "\u2028", "Σ", "nan", "1"]

ODD_JSON = st.one_of(
    st.sampled_from(
        [
            *("null", "true", "false", "[]", "{}", '""', "-0", "0.5", "1e999", "-1e-999", "[[]]"),
            *("NaN", "Infinity", "-Infinity", "9" * 5000, "1" + "0" * 400, "[{}]", "{", "]", ","),
            *("[" * depth + "]" * depth for depth in (10, 900, 20_000)),
            *('{"a":' * depth + "1" + "}" * depth for depth in (10, 900, 10_000)),
        ]
    ),
    st.sampled_from(EXTREMES).map(str),
    st.sampled_from(ODD_TEXTS).map(json.dumps),
    st.text(max_size=5).map(json.dumps),
)
"""JSON of another type or size than a reader expects, and text that is almost JSON."""


@st.composite
def mutated_json(draw: Draw, valid: object, most: int = 3) -> bytes:
    """JSON that differs from a valid value in some of its entries, at any depth."""
    root = [copy.deepcopy(valid)]
    fragments: list[str] = []
    for _ in range(draw(st.integers(1, most))):
        places = list(_places(root))
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["replace", "replace", "copy", "remove", "rename"]))
        if change == "replace":
            container[key] = _mark(len(fragments))
            fragments.append(draw(ODD_JSON))
        elif change == "copy":
            other, name = draw(st.sampled_from(places))
            container[key] = copy.deepcopy(other[name])
        elif change == "rename" and isinstance(container, dict):
            container[draw(st.sampled_from([*ODD_TEXTS, *container]))] = container.pop(key)
        elif container is not root:
            del container[key]
    text = json.dumps(root[0], indent=draw(st.sampled_from([None, 1])))
    for number, fragment in enumerate(fragments):
        text = text.replace(json.dumps(_mark(number)), fragment)
    return text.encode()


def _mark(number: int) -> str:
    return f"replaced {number} here"


def _places(container: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of lists and dicts within one another, as what holds it and its key there."""
    if isinstance(container, dict | list):
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            yield container, key
            yield from _places(container[key])
