"""A verb as a filter: a line of output for each sentence that is given, or line of the input."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from io import BufferedIOBase, BytesIO
from pathlib import Path

import click

from headwise.cli.streams import reader_is_gone, standard_input, standard_output, write_whole
from headwise.errors import DataError


def require_one_input(sentences: tuple[str, ...], source: Path | None) -> None:
    """Raise a usage error if there are both sentences and a file."""
    if sentences and source is not None:
        raise click.UsageError("give sentences as arguments or a file with --input, not both")


def filter_lines(
    sentences: tuple[str, ...],
    source: Path | None,
    target: Path | None,
    lines_of: Callable[[list[str], int, str], list[str]],
    *,
    lenient: bool,
    doing: str,
) -> None:
    """Write a line for each sentence or, without any, for each line of a file or of stdin.

    `lines_of` gets some lines, the number of the first, from 0, and the name of the input for error
    messages. Without a target, stdout is written to.
    """
    from headwise.cli.watch import watch
    from headwise.workflows.line_filter import translate_lines

    if target is not None and not sentences:
        _require_another(target, source)
    with ExitStack() as stack:
        reading, name = _input(sentences, source)
        if target is None:
            writing = standard_output("let it go somewhere, or to a file with --output FILE")
        else:
            writing = stack.enter_context(target.open("wb"))
        reads_stdin = source is None and not sentences
        shows_progress = _shows_progress(reads_stdin=reads_stdin, writes_stdout=target is None)
        watcher = stack.enter_context(watch()) if shows_progress else None

        def on_progress(done: int) -> None:
            if watcher is not None:
                watcher.progress(doing, done, None)

        try:
            translate_lines(
                reading,
                name,
                lambda texts, first: lines_of(texts, first, name),
                lambda content: write_whole(writing, content),
                lenient=lenient,
                on_progress=on_progress,
            )
        except BrokenPipeError:
            raise reader_is_gone() from None


def _input(sentences: tuple[str, ...], source: Path | None) -> tuple[BufferedIOBase, str]:
    """Return what to read lines from, and its name in error messages."""
    if sentences:
        lines = (os.fsencode(sentence) + b"\n" for sentence in sentences)
        return BytesIO(b"".join(lines)), "argument"
    if source is not None:
        return source.open("rb"), str(source)
    return standard_input("give sentences, or a file with --input FILE"), "stdin"


def _require_another(target: Path, source: Path | None) -> None:
    """Raise DataError if the output would overwrite the input."""
    if source is None and sys.stdin is None:
        return
    read = os.fstat(sys.stdin.fileno()) if source is None else source.stat()
    if target.is_file() and os.path.samestat(read, target.stat()):
        raise DataError(f"{target}: is the input, too, and would be lost: name another file")


def _shows_progress(*, reads_stdin: bool, writes_stdout: bool) -> bool:
    """Return whether to show a progress bar: not where it would mix with lines on a terminal."""
    reads_terminal = reads_stdin and sys.stdin.isatty()
    writes_terminal = writes_stdout and sys.stdout.isatty()
    return sys.stderr.isatty() and not reads_terminal and not writes_terminal
