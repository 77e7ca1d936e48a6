"""A transcriber's run, described for its report."""

import shlex

from headwise.data import TokenShards
from headwise.errors import DataError
from headwise.evaluation import TextErrors
from headwise.evaluation.class_table import margin, percent
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.encoders import Encoded, InputKind
from headwise.tasks.report import Cell, Contents, Figure
from headwise.tasks.transcription.files import TranscribedFiles
from headwise.tasks.transcription.scores import evaluate_transcriber
from headwise.tasks.transcription.targets import STREAM
from headwise.tasks.transcription.transcriber import Transcriber
from headwise.training.task import Progress

_SAMPLES, _TRACED = 6, 3
_SEARCHED = 200
"""Validation examples among which wrong ones are looked for."""

_FLAGS = {
    "images": "--table test.csv --image-column path --text-column text",
    "audio": "--table test.csv --audio-column path --text-column text",
}
_DOES = {"images": "reads images of lines of text", "audio": "writes down what is said"}
_GIVEN = {"images": "line.png", "audio": "sound.wav"}


def report_contents(
    run: RunDirectory,
    transcriber: Transcriber,
    kind: InputKind,
    files: TranscribedFiles | None,
    on_progress: Progress,
) -> Contents:
    """Describe a run; it is scored on transcribed files if those are given.

    Samples are the validation examples in the run's own directory, if they are there: wrong ones
    first.
    """
    unit, flags = kind.unit, _FLAGS[transcriber.input]
    shown = _validation_examples(run, transcriber, kind)
    samples = tuple(_sample(transcriber, *each) for each in shown)
    traced = [
        encoded
        for encoded, right, _ in shown
        if transcriber.is_traceable(encoded, transcriber.targets.encode(right))
    ]
    about = f"Validation {unit}: wrong transcriptions, then others at regular intervals."
    if not samples:
        about = f"No examples: the {unit} that the run was validated on are not in its directory."
    scores, about_scores = _scores(run, transcriber, kind, files, on_progress)
    count = run.origin().get("train_examples")
    path = shlex.quote(str(run.path))
    return Contents(
        does=_DOES[transcriber.input],
        trained_on=(count, unit) if type(count) is int and 0 < count < 2**63 else None,
        scores=scores,
        about_scores=about_scores,
        samples=samples,
        about_samples=about,
        traced=tuple(traced[:_TRACED]),
        commands=(
            ("Transcribe one:", f"headwise transcribe {path} {_GIVEN[transcriber.input]}"),
            (f"Measure it on transcribed {unit}:", f"headwise evaluate {path} {flags}"),
            (
                f"Train on {unit} of your own:",
                f"headwise train {transcriber.config.row.recipe} "
                f"{flags.replace('test', 'train')} --run runs/mine",
            ),
        ),
    )


def _scores(
    run: RunDirectory,
    transcriber: Transcriber,
    kind: InputKind,
    files: TranscribedFiles | None,
    on_progress: Progress,
) -> tuple[tuple[Figure, ...], str]:
    if files is None:
        return (), f"Not scored yet. `headwise report` with transcribed {kind.unit} adds scores."
    found = evaluate_transcriber(run.path, transcriber, files, kind, on_progress=on_progress)
    return score_figures(found.errors), f"Of {found.errors.examples:,} transcribed {kind.unit}."


def score_figures(errors: TextErrors) -> tuple[Figure, ...]:
    """Return the error rates, as they are shown."""
    named = (
        ("Exactly right", errors.exact, errors.exact_interval),
        ("Word error rate", errors.words.rate, errors.word_interval),
        ("Character error rate", errors.characters.rate, errors.character_interval),
    )
    return tuple(
        Figure(name=name, value=percent(value), more=f"% {margin(interval)}")
        for name, value, interval in named
    )


def _validation_examples(
    run: RunDirectory, transcriber: Transcriber, kind: InputKind
) -> list[tuple[Encoded, str, str]]:
    """Return some of the run's own validation data, with their texts and the run's own."""
    shards = own_shards(run, "valid")
    if shards is None or not len(shards):
        return []
    step = max(1, len(shards) // _SEARCHED)
    numbers = list(range(0, len(shards), step))[:_SEARCHED]
    examples = [_stored(shards, number, transcriber, kind) for number in numbers]
    outputs = [each.text for each in transcriber.transcribe([each for each, _ in examples])]
    together = [
        (encoded, right, output) for (encoded, right), output in zip(examples, outputs, strict=True)
    ]
    wrong = [each for each in together if each[1] != each[2]][: _SAMPLES // 2]
    others = [each for each in together if each[1] == each[2]]
    count = min(_SAMPLES - len(wrong), len(others))
    return wrong + [others[number * len(others) // count] for number in range(count)]


def _stored(
    shards: TokenShards, number: int, transcriber: Transcriber, kind: InputKind
) -> tuple[Encoded, str]:
    """Return an example of the run's own data, and its text."""
    values = shards.sequence(kind.stream, number)
    width = transcriber.model.vocab.source_width
    if values.ndim != 2 or values.shape[1] != width:
        raise DataError(f"{shards.directory}: {kind.stream} is not of this run: prepare it anew")
    targets = transcriber.targets
    ids = shards.checked_sequence(STREAM, number, len(targets)).tolist()
    return Encoded(values), targets.decode(ids)


def _sample(
    transcriber: Transcriber, example: Encoded, right: str, output: str
) -> tuple[Cell, ...]:
    picture = transcriber.encoder.picture(example)
    assert picture is not None
    label = "Image" if picture.kind == "image" else "Spectrogram"
    return (
        Cell(label=label, text="", png=picture.png),
        Cell(label="Transcription", text=output, is_output=True),
        Cell(label="Right", text=right),
    )
