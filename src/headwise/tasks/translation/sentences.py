"""Split long text into sentences and, where those are too long, into pieces."""

import re

from sentencex import segment

from headwise.data import Subwords

_ODD_SPACE = re.compile(r"[^\S ]")


def split_sentences(text: str, language: str) -> list[str]:
    """Split text into lines and those into sentences; joined, they are the text again."""
    parts = []
    for line in text.splitlines(keepends=True):
        # The splitter panics at some multi-byte spaces (a capital, U+0085, a full stop), so each
        # is replaced with a plain space. Without a language, use English: its rules are those
        # that most languages share.
        shown: list[str] = list(segment(language or "en", _ODD_SPACE.sub(" ", line)))
        start = 0
        for part in shown:
            parts.append(line[start : start + len(part)])
            start += len(part)
        assert start == len(line), "the splitter must lose nothing"
    return parts


def split_to_fit(text: str, subwords: Subwords, limit: int, language: str) -> list[str]:
    """Split text into parts of at most `limit` tokens: at sentences, at spaces, or anywhere."""
    parts: list[str] = []
    for sentence in split_sentences(text, language):
        parts += _halved(sentence, subwords, limit)
    return parts


def _halved(text: str, subwords: Subwords, limit: int) -> list[str]:
    """Split text in half, near a space, until every part fits."""
    ahead, done = [text], []
    while ahead:
        part = ahead.pop()
        # Few tokens have more than sixteen characters: a text that is far too long need not be
        # encoded to know that.
        if len(part) < 2 or (len(part) <= 16 * limit and len(subwords.encode(part)) <= limit):
            done.append(part)
            continue
        middle = len(part) // 2
        before, after = part.rfind(" ", 0, middle), part.find(" ", middle)
        spaces = [place + 1 for place in (before, after) if 0 <= place < len(part) - 1]
        cut = min(spaces, key=lambda place: abs(place - middle), default=middle)
        ahead += [part[cut:], part[:cut]]
    return done
