"""Text from files, names and models, made safe to print on a terminal and in a log."""

IN_TEXT = "\u00a0\u202f\u3000\u200c\u200d"
"""What ordinary text of some languages has, and a terminal does no harm with: no-break spaces
(French), the wide space (Chinese, Japanese), and what keeps letters apart or joins them (Persian,
Hindi, emoji)."""


def visible(text: str, *, keep: str = "") -> str:
    r"""Return a text with every character that cannot be seen as its escape: ESC as \x1b.

    That is every control character, line feeds included, each mark that reorders text or has no
    width, line and paragraph separators, all spaces but U+0020, and lone surrogates, which stand
    for the bytes of a file name that are not text. The characters in `keep` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
