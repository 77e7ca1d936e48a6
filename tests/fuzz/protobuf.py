"""Damaged protocol buffers: a message with other fields, whose lengths still agree."""

import struct

from hypothesis import strategies as st

from tests.fuzz.mutations import EXTREMES, Draw, mutated

Field = tuple[int, int, bytes]
"""Number, wire type, and content without its length."""

_SIZES = {1: 8, 5: 4}
_VARINT, _BYTES = 0, 2


@st.composite
def mutated_message(draw: Draw, valid: bytes) -> bytes:
    """A message in which one to three fields, or fields of its parts, are others."""
    message = valid
    for _ in range(draw(st.integers(1, 3))):
        fields = parsed(message)
        place = _place(draw, fields)
        number, kind, content = fields[place]
        if kind == _BYTES and content and draw(st.integers(0, 3)):
            inner = _changed(draw, parsed(content)) if _is_message(content) else None
            fields[place] = number, kind, draw(mutated(content)) if inner is None else inner
            message = serialised(fields)
        else:
            message = _changed(draw, fields)
        if not message:
            break
    return message


def _changed(draw: Draw, fields: list[Field]) -> bytes:
    place = _place(draw, fields)
    number, kind, content = fields[place]
    change = draw(st.sampled_from(["content", "content", "content", "remove", "repeat", "number"]))
    if change == "remove":
        del fields[place]
    elif change == "repeat":
        fields[place:place] = [fields[place]] * draw(st.sampled_from([1, 2, 1000]))
    elif change == "number":
        fields[place] = draw(st.integers(1, 50)), kind, content
    elif kind == _BYTES:
        fields[place] = number, kind, draw(mutated(content) | st.sampled_from(_ODD_BYTES))
    elif kind == _VARINT:
        fields[place] = number, kind, _varint(draw(st.sampled_from(EXTREMES)) % 2**64)
    else:
        floats = [0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e38]
        packed = struct.pack("<f", draw(st.sampled_from(floats))) * (_SIZES[kind] // 4)
        fields[place] = number, kind, packed
    return serialised(fields)


def _place(draw: Draw, fields: list[Field]) -> int:
    """Choose a number and then a field of it, so that lists do not outweigh single fields."""
    number = draw(st.sampled_from(sorted({field[0] for field in fields})))
    places = [place for place, field in enumerate(fields) if field[0] == number]
    return int(draw(st.sampled_from(places)))


_ODD_BYTES = [b"", b"\0", b"\xff", b"<unk>", b"<0x00>", b"<0xFG>", "\u2581".encode(), b"a" * 10_000]


def parsed(message: bytes) -> list[Field]:
    """Return the fields of a message; ValueError or IndexError where it is none."""
    fields: list[Field] = []
    place = 0
    while place < len(message):
        tag, place = _read_varint(message, place)
        number, kind = tag >> 3, tag & 7
        start = place
        if kind == _VARINT:
            _, place = _read_varint(message, place)
        elif kind == _BYTES:
            size, start = _read_varint(message, place)
            place = start + size
        elif kind in _SIZES:
            place += _SIZES[kind]
        else:
            raise ValueError("not a wire type that is in use")
        if place > len(message) or number == 0:
            raise ValueError("not a message")
        fields.append((number, kind, message[start:place]))
    return fields


def serialised(fields: list[Field]) -> bytes:
    parts = []
    for number, kind, content in fields:
        parts.append(_varint(number << 3 | kind))
        if kind == _BYTES:
            parts.append(_varint(len(content)))
        parts.append(content)
    return b"".join(parts)


def _is_message(content: bytes) -> bool:
    try:
        return bool(parsed(content))
    except (ValueError, IndexError):
        return False


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
