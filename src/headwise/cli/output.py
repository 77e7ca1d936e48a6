"""Text to the terminal, whatever that can show."""

import os
import sys
import unicodedata

import click

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
    """Print to stdout: colours only on a terminal that wants them, ASCII where there is no more."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(_nearest(character, encoding) for character in text.translate(_ASCII))
    click.echo(text, color=colour())


def _nearest(character: str, encoding: str) -> str:
    """Return a character as an encoding can have it: itself, without its accent, or "?"."""
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        plain = unicodedata.normalize("NFKD", character)
        return plain.encode(encoding, "ignore").decode(encoding) or "?"
    return character


def visible(text: str) -> str:
    """Show what a model said, which may be nothing, or something that a terminal would obey."""
    if not text.strip():
        return "(nothing)"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def error_line(message: str) -> None:
    """Print one line to stderr, even where the message quotes something with line breaks."""
    label = click.style("headwise:", fg="red", bold=True)
    click.echo(f"{label} {' '.join(message.split())}", err=True, color=colour())


def colour() -> bool | None:
    """Return False where colours are unwanted; None lets click look whether it is a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
