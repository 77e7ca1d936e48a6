"""`headwise evaluate` for transcribers."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from headwise.data import LineReport
from headwise.errors import DataError
from headwise.evaluation import (
    TextErrors,
    align,
    alignment_lines,
    count_edits,
    edit_report,
    edit_values,
    score_texts,
    text_table,
)
from headwise.evaluation.class_table import margin, percent
from headwise.tasks.encoders import InputKind
from headwise.tasks.transcription.files import TranscribedFiles, read_examples
from headwise.tasks.transcription.transcriber import Transcriber
from headwise.training.task import Progress
from headwise.visible import visible

_WINDOW = 256
"""Examples that are read and transcribed between two reports of progress."""

_MOST_SHOWN = 5
_LONGEST_SHOWN = 100
"""Words of a text whose alignment is shown."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """An example and what was made of it."""

    place: str
    reference: str
    output: str


@dataclass(frozen=True, kw_only=True)
class RunTranscriptions:
    """How one run transcribes the same examples as others."""

    run: str
    weights: str
    errors: TextErrors
    worst: tuple[Mistake, ...]
    """Those with the most errors in their characters, the worst first."""
    unit: str
    """What the examples are called, in the plural."""
    seconds: float
    left_out: tuple[str, ...]
    """What of the files was not used, and why."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "run": self.run,
            "weights": self.weights,
            "seconds": self.seconds,
            "left_out": list(self.left_out),
            **edit_values(self.errors),
            "worst": [vars(mistake) for mistake in self.worst],
        }


@dataclass(frozen=True, kw_only=True)
class TranscriptionEvaluation:
    """How several runs transcribe the same examples."""

    runs: tuple[RunTranscriptions, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {"runs": [run.to_dict() for run in self.runs]}

    def text(self) -> str:
        """Return the tables of one run, or a line for each of several."""
        if len(self.runs) == 1:
            (run,) = self.runs
            speed = f"{run.errors.examples / run.seconds:,.1f} {run.unit}/s"
            about = "\n".join((f"{visible(run.weights)}: {speed}", *run.left_out))
            return "\n\n".join(filter(None, (about, edit_report(run.errors), _alignments(run))))
        rows = [
            (
                run.run,
                percent(run.errors.exact),
                margin(run.errors.exact_interval),
                percent(run.errors.words.rate),
                margin(run.errors.word_interval),
                percent(run.errors.characters.rate),
                margin(run.errors.character_interval),
                f"{run.errors.examples / run.seconds:,.1f}",
            )
            for run in self.runs
        ]
        header = ("run", "exactly right", "95 %", "WER", "95 %", "CER", "95 %")
        return text_table((*header, f"{self.runs[0].unit}/s"), rows)


def evaluate_runs(
    runs: Sequence[Path],
    files: TranscribedFiles,
    *,
    kind: InputKind,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    on_progress: Progress = lambda *_: None,
) -> TranscriptionEvaluation:
    """Transcribe the examples of tables with each run, and compare the texts."""
    found = []
    for run in runs:
        transcriber = Transcriber.load(run, checkpoint=checkpoint, overrides=overrides)
        found.append(evaluate_transcriber(run, transcriber, files, kind, on_progress=on_progress))
    return TranscriptionEvaluation(runs=tuple(found))


def evaluate_transcriber(
    run: Path,
    transcriber: Transcriber,
    files: TranscribedFiles,
    kind: InputKind,
    *,
    on_progress: Progress = lambda *_: None,
) -> RunTranscriptions:
    """Transcribe the examples of tables with one transcriber, and compare the texts."""
    report = LineReport()
    places: list[str] = []
    references: list[str] = []
    outputs: list[str] = []
    seconds = 0.0
    data, encoder = transcriber.config.data, transcriber.encoder
    reading = read_examples(files, data, kind, lenient=False, report=report)
    while window := list(islice(reading, _WINDOW)):
        on_progress(f"transcribing with {run.name}", len(outputs), None)
        encoded = [encoder.encode(example.content) for example in window]
        began = time.perf_counter()
        outputs += [each.text for each in transcriber.transcribe(encoded)]
        seconds += time.perf_counter() - began
        references += [example.text for example in window]
        places += [example.place for example in window]
    if not outputs:
        raise DataError(f"{files.paths[0]}: there are no transcribed {kind.unit} to evaluate on")
    return RunTranscriptions(
        run=str(run),
        weights=transcriber.name,
        errors=score_texts(references, outputs),
        worst=_worst(places, references, outputs),
        unit=kind.unit,
        seconds=seconds,
        left_out=tuple(report.lines(kind.unit)),
    )


def _worst(
    places: Sequence[str], references: Sequence[str], outputs: Sequence[str]
) -> tuple[Mistake, ...]:
    rates = {
        number: count_edits(reference, output).rate
        for number, (reference, output) in enumerate(zip(references, outputs, strict=True))
        if reference != output
    }
    chosen = sorted(rates, key=lambda number: (-rates[number], number))[:_MOST_SHOWN]
    return tuple(
        Mistake(place=places[number], reference=references[number], output=outputs[number])
        for number in chosen
    )


def _alignments(run: RunTranscriptions) -> str:
    """Show the worst cases: reference, output, and what is Substituted, Deleted or Inserted.

    Texts of a single word are aligned by their characters.
    """
    if not run.worst:
        return ""
    lines = ["worst, with the reference above the output:"]
    for mistake in run.worst:
        texts = mistake.reference, mistake.output
        by_words = any(len(text.split()) > 1 for text in texts)
        one, other = (text.split() if by_words else list(text) for text in texts)
        lines.append(visible(mistake.place))
        edits = align(one[:_LONGEST_SHOWN], other[:_LONGEST_SHOWN])
        lines += [f"  {line}".rstrip() for line in alignment_lines(edits)]
    return "\n".join(lines)
