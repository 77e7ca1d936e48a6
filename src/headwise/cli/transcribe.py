"""`headwise transcribe`: the texts of images of lines, or of sounds."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.line_filter import filter_lines, require_one_input
from headwise.cli.output import error_line, note
from headwise.cli.text_options import FILE
from headwise.config import STRONGEST_PENALTY

if TYPE_CHECKING:
    from headwise.tasks.transcription.transcriber import Transcription

EPILOG = """\b
Examples:
  headwise transcribe runs/read line.png
  ls lines/*.png | headwise transcribe runs/read > texts.txt  one path on each line
  headwise transcribe runs/listen --times talk.wav            when each word is said
  headwise transcribe runs/listen --json a.wav b.wav          one JSON object for each file

Each file, or each path in the input, gives one line with its text. A sound that is
longer than what the model reads at once is cut where it is quiet. With --times, the line
has a field for each word, with tabs between them: when it begins, when it ends, the word.
Without files and --input, paths are read from stdin.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--input", "source", type=FILE, help="Read paths from a file instead of stdin.")
@click.option("--output", "target", type=FILE, help="Write to a file instead of stdout.")
@click.option("--times", is_flag=True, help="Say when each word of a sound is said.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each file.")
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option("--beam", type=click.IntRange(min=1), help="Hypotheses kept open.")
@click.option(
    "--alpha",
    type=click.FloatRange(min=0, max=STRONGEST_PENALTY),
    help="Strength of the length penalty.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Files searched at a time.")
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a [decode] setting."
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
def transcribe(
    run: Path,
    files: tuple[str, ...],
    source: Path | None,
    target: Path | None,
    times: bool,
    as_json: bool,
    checkpoint: str | None,
    beam: int | None,
    alpha: float | None,
    batch_size: int | None,
    overrides: tuple[str, ...],
    device: str,
) -> None:
    """Write down images of lines of text, or sounds, by their paths."""
    require_one_input(files, source)

    from headwise.tasks.transcription.kinds import kind_of
    from headwise.tasks.transcription.transcriber import Transcriber

    transcriber = Transcriber.load(
        run, checkpoint=checkpoint, device=device, batch_size=batch_size, overrides=overrides
    )
    note(f"using {transcriber.name}")
    cut = 0

    def lines_of(paths: list[str], first: int, name: str) -> list[str]:
        nonlocal cut
        found = transcriber.transcribe(paths, beam=beam, alpha=alpha, times=times)
        cut += sum(each.is_cut for each in found)
        if as_json:
            pairs = zip(paths, found, strict=True)
            return [json.dumps(_as_json(*pair), ensure_ascii=False) for pair in pairs]
        return [_timed(each) if times else each.text for each in found]

    filter_lines(files, source, target, lines_of, lenient=False, doing="transcribing")
    if cut:
        kind = kind_of(transcriber.config)
        were = f"1 of the {kind.unit} was" if cut == 1 else f"{cut:,} {kind.unit} were"
        error_line(f"{were} cut off after {kind.most(transcriber.config.data)}")


def _timed(found: "Transcription") -> str:
    return "\t".join(f"{each.start:.2f} {each.end:.2f} {each.word}" for each in found.words)


def _as_json(file: str, found: "Transcription") -> dict[str, Any]:
    return {
        "file": file,
        "text": found.text,
        "log_prob": found.log_prob,
        "score": found.score,
        "is_cut": found.is_cut,
        "parts": found.num_parts,
        "words": [vars(each) for each in found.words],
    }
