"""Print text safely to any terminal.

Names, paths, languages and translations may come from untrusted files. A value goes through
`visible` before it is put into a text of several lines, so that it stays within its line; `show`,
`note` and `error_line` escape the rest, so that no control character reaches a terminal.
"""

import json
import os
import sys
import unicodedata

import click

from headwise.visible import IN_TEXT, visible

_ASCII = str.maketrans(
    {
        "×": "x",
        "·": "*",
        "√": "sqrt ",
        "ᵀ": "^T",
        "−": "-",
        "∞": "inf",
        "§": "section ",
        "…": "...",
        "±": "+/-",
        "–": "-",
        "“": '"',
        "”": '"',
        "‘": "'",
        "’": "'",
        "¿": "",
        "¡": "",
    }
)


def show(text: str) -> None:
    """Print lines to stdout, with control characters escaped except line feeds and tabs."""
    show_styled(visible(text, keep="\n\t"))


def show_styled(text: str) -> None:
    """Print text with our own styles; its other parts must have been escaped.

    Colours are printed on terminals only, and characters that stdout cannot encode become ASCII.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(_nearest(character, encoding) for character in text.translate(_ASCII))
    click.echo(text, color=colour())


def show_json(values: object) -> None:
    """Print values as JSON in which every control character is a JSON escape."""
    text = json.dumps(values, indent=2, ensure_ascii=False)
    show_styled("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def _nearest(character: str, encoding: str) -> str:
    """Return a character itself, without its accent, or "?": what the encoding has."""
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        plain = unicodedata.normalize("NFKD", character)
        return plain.encode(encoding, "ignore").decode(encoding) or "?"
    return character


def shown_text(text: str) -> str:
    """Return a sentence or a translation for display; it may be empty."""
    return visible(text, keep=IN_TEXT) if text.strip() else "(nothing)"


def note(line: str) -> None:
    """Print one line to stderr."""
    click.echo(visible(line), err=True, color=colour())


def error_line(message: str) -> None:
    """Print an error message of one line to stderr."""
    label = click.style("headwise:", fg="red", bold=True)
    click.echo(f"{label} {visible(message)}", err=True, color=colour())


def error_lines(text: str) -> None:
    """Print a traceback to stderr."""
    click.echo(visible(text, keep="\n"), err=True, color=colour(), nl=False)


def colour() -> bool | None:
    """Return False if the user wants no colours; None lets click detect a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
