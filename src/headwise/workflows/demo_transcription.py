"""The demos of transcription: train, and transcribe a test."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from headwise.data import LineReport
from headwise.data.prepare import Progress
from headwise.tasks.transcription.files import TranscribedFiles, read_examples
from headwise.tasks.transcription.kinds import kind_of
from headwise.tasks.transcription.report import report_contents, score_figures
from headwise.tasks.transcription.scores import RunTranscriptions, evaluate_transcriber
from headwise.tasks.transcription.transcriber import Transcriber
from headwise.workflows.demo_runs import SAMPLES, TrainedDemo
from headwise.workflows.report import write_report


@dataclass(frozen=True, kw_only=True)
class TranscriptionDemo:
    """What a demo trains on and says."""

    name: str
    recipe: str
    unit: str
    """What is transcribed, in the plural."""
    about: str
    train: str
    """The name of the table to train on."""
    test: str
    get: Callable[[Path, Callable[[str], None]], Path]
    """Get the files, into a folder of its own in the one given, unless they are there; return it.
    The second argument is told what is done."""
    files: Callable[[Path], TranscribedFiles]
    """Make transcribed files of one of the tables."""
    options: str
    """How a command names them, with {} for the path."""
    example: Callable[[Path], str]
    """The path of a file to transcribe, by the path of the test."""
    try_out: str
    """What to say before people type something."""
    minutes: float | None = None
    """Of training; None: as the recipe has them."""


@dataclass(frozen=True, kw_only=True)
class TranscriptionDemoReport:
    """The results of a trained demo."""

    demo: TranscriptionDemo
    training: TrainedDemo
    found: RunTranscriptions
    samples: list[tuple[str, str, str]]
    """Some of the test: where it is, what the model made of it, and what is right."""
    transcriber: Transcriber
    page: Path
    """The report, as a page."""


def evaluate_transcription_demo(
    demo: TranscriptionDemo, training: TrainedDemo, *, on_progress: Progress = lambda *_: None
) -> TranscriptionDemoReport:
    """Transcribe the test, and write the report."""
    run, transcriber = training.run, Transcriber.load(training.run.path)
    kind, test = kind_of(transcriber.config), demo.files(training.test)
    found = evaluate_transcriber(run.path, transcriber, test, kind, on_progress=on_progress)
    contents = replace(
        report_contents(run, transcriber, kind, None, on_progress),
        scores=score_figures(found.errors),
        about_scores=f"Of {found.errors.examples:,} {demo.unit} that it never saw.",
    )
    reading = read_examples(test, transcriber.config.data, kind, lenient=False, report=LineReport())
    shown = list(islice(reading, SAMPLES))
    outputs = transcriber.transcribe([transcriber.encoder.encode(each.content) for each in shown])
    return TranscriptionDemoReport(
        demo=demo,
        training=training,
        found=found,
        samples=[
            (Path(each.place).name, output.text, each.text)
            for each, output in zip(shown, outputs, strict=True)
        ],
        transcriber=transcriber,
        page=write_report(run, transcriber, contents),
    )
