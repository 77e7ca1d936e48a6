"""Text to the terminal, whatever that can show.

Names, paths, languages and translations may come from files that others wrote. A value goes through
`visible` before it is put into a text of several lines, so that it stays within its line; `show`,
`note` and `error_line` escape what is left, so that no control character reaches a terminal.
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
    """Print lines to stdout, with everything but line feeds and tabs made visible."""
    show_styled(visible(text, keep="\n\t"))


def show_styled(text: str) -> None:
    """Print text with styles of our own, of parts that were made visible before.

    Colours go only to a terminal that wants them, and ASCII where there is no more.
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
    """Return a character as an encoding can have it: itself, without its accent, or "?"."""
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        plain = unicodedata.normalize("NFKD", character)
        return plain.encode(encoding, "ignore").decode(encoding) or "?"
    return character


def shown_text(text: str) -> str:
    """Return a sentence or a translation, which may be empty, as a person is shown it."""
    return visible(text, keep=IN_TEXT) if text.strip() else "(nothing)"


def note(line: str) -> None:
    """Print one line to stderr."""
    click.echo(visible(line), err=True, color=colour())


def error_line(message: str) -> None:
    """Print one line to stderr that says what is wrong."""
    label = click.style("headwise:", fg="red", bold=True)
    click.echo(f"{label} {visible(message)}", err=True, color=colour())


def error_lines(text: str) -> None:
    """Print a traceback to stderr."""
    click.echo(visible(text, keep="\n"), err=True, color=colour(), nl=False)


def colour() -> bool | None:
    """Return False where colours are unwanted; None lets click look whether it is a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
