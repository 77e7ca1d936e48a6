"""Long text in parts that a model can take: sentences and, where those are too long, pieces."""

from sentencex import segment  # type: ignore[import-untyped]

from headwise.data import Subwords


def split_sentences(text: str, language: str) -> list[str]:
    """Cut a paragraph into sentences; put together they are the paragraph again."""
    # Told no language, it goes by the rules that most languages share.
    parts: list[str] = list(segment(language or "en", text))
    assert "".join(parts) == text, "the splitter must lose nothing"
    return parts


def split_to_fit(text: str, subwords: Subwords, limit: int, language: str) -> list[str]:
    """Cut text into parts of at most `limit` tokens: at sentences, at spaces, or anywhere."""
    parts: list[str] = []
    for sentence in split_sentences(text, language):
        parts += _halved(sentence, subwords, limit)
    return parts


def _halved(text: str, subwords: Subwords, limit: int) -> list[str]:
    """Cut text in two, near its middle, until every part fits."""
    ahead, done = [text], []
    while ahead:
        part = ahead.pop()
        # A token has at least one byte, and few have more than sixteen characters: what is far too
        # long need not be encoded to know it.
        if len(part) < 2 or (len(part) <= 16 * limit and len(subwords.encode(part)) <= limit):
            done.append(part)
            continue
        middle = len(part) // 2
        before, after = part.rfind(" ", 0, middle), part.find(" ", middle)
        spaces = [place + 1 for place in (before, after) if 0 <= place < len(part) - 1]
        cut = min(spaces, key=lambda place: abs(place - middle), default=middle)
        ahead += [part[cut:], part[:cut]]
    return done
