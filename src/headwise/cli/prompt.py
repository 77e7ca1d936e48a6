"""An interactive prompt that translates, parses, classifies or transcribes each line."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from headwise.cli.output import error_line, show, show_styled, shown_text

if TYPE_CHECKING:
    from headwise.tasks.classification.classifier import Classifier
    from headwise.tasks.parsing.parser import Parser
    from headwise.tasks.transcription.transcriber import Transcriber
    from headwise.tasks.translation.translator import Translation, Translator

ALTERNATIVES = 4

HELP = "Enter translates; ? shows alternatives to the last one; an empty line ends."


def converse(translator: "Translator") -> None:
    """Translate what is typed, until an empty line, Ctrl-D or Ctrl-C."""
    from headwise.errors import RequestError

    last = ""
    for line in _lines():
        wants_all = line.startswith("?")
        text = line.removeprefix("?").strip() or last
        if not text:
            show("  Type a sentence first.")
            continue
        try:
            (translation,) = translator.translate([text], nbest=ALTERNATIVES if wants_all else 1)
        except RequestError as error:
            error_line(str(error))
            continue
        except KeyboardInterrupt:
            show("")
            return
        answer = f"  {shown_text(translation.text)}"
        show_styled(_alternatives(translation) if wants_all else answer)
        last = text


def draw_trees(parser: "Parser") -> None:
    """Parse what is typed, until an empty line, Ctrl-D or Ctrl-C."""
    from headwise.errors import RequestError

    for line in _lines():
        try:
            (parse,) = parser.parse(line)
        except RequestError as error:
            error_line(str(error))
            continue
        except KeyboardInterrupt:
            show("")
            return
        show(parse.pretty())


def classify_lines(classifier: "Classifier") -> None:
    """Classify what is typed, until an empty line, Ctrl-D or Ctrl-C."""
    from headwise.errors import HeadwiseError

    for line in _lines():
        try:
            (found,) = classifier.classify(line, top=3)
        except HeadwiseError as error:
            error_line(str(error))
            continue
        except KeyboardInterrupt:
            show("")
            return
        answers = (f"{shown_text(each.label)} {each.probability:.1%}" for each in found.answers)
        show(f"  {', '.join(answers)}")


def transcribe_files(transcriber: "Transcriber") -> None:
    """Transcribe the files whose paths are typed, until an empty line, Ctrl-D or Ctrl-C."""
    from headwise.errors import HeadwiseError

    for line in _lines():
        try:
            (found,) = transcriber.transcribe(line)
        except HeadwiseError as error:
            error_line(str(error))
            continue
        except KeyboardInterrupt:
            show("")
            return
        show(f"  {shown_text(found.text)}")


def _lines() -> Iterator[str]:
    """Yield what is typed, until an empty line, Ctrl-D or Ctrl-C."""
    with suppress(ImportError):
        import readline  # noqa: F401 - gives `input` the arrow keys and a history

    while True:
        try:
            line = _typed()
        except (EOFError, KeyboardInterrupt):
            show("")
            return
        except UnicodeDecodeError:
            error_line("not text in this encoding: try LANG=C.UTF-8")
            continue
        if not line:
            return
        yield line


def _typed() -> str:
    line = input("> ")
    # Python passes bytes that are not text as lone surrogates, which cannot be translated.
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()


def _alternatives(translation: "Translation") -> str:
    """List the candidates, best first."""
    return "\n".join(
        f"  {click.style(f'{place}.', dim=True)} {shown_text(candidate.text)}"
        for place, candidate in enumerate(translation.candidates, start=1)
    )
