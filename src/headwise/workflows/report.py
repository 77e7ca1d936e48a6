"""Write a run's report from its directory, with scores if a test set is given."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from headwise.config import Vocab
from headwise.errors import RequestError
from headwise.evaluation import References
from headwise.files import replace_file, write_output
from headwise.inspect.attention import attention_record
from headwise.inspect.curves import load_curves
from headwise.inspect.report_page import Report, Sample, render_report
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.runs.environment import read_sessions
from headwise.runs.metrics import iterate_metrics
from headwise.tasks.translation.translator import Translation, Translator
from headwise.workflows.evaluate import RunScores, evaluate_translator

__all__ = ["Sample", "report", "write_report"]

_SAMPLES, _SENTENCES = 10, 5
_FEWEST_TOKENS, _MOST_TOKENS = 4, 25
"""Of a sentence whose attention is shown: neither trivial nor too large for a screen."""

_LONGEST_SAMPLE = 1000
"""Tokens of a sentence that a page shows."""

_Pair = tuple[str, tuple[str, ...]]
"""A source and its references."""

UNSEEN = "Sentences that training never saw, as they come."


def report(
    run: RunDirectory,
    translator: Translator,
    *,
    test: tuple[Sequence[str], References] | None = None,
    out: Path | None = None,
    on_progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> Path:
    """Write the report of a run, scored on a test set if one is given; return its path.

    Without a test set, the samples are some of the validation pairs in the run's own directory, if
    there are any.
    """
    scores = None
    if test is None:
        pairs, about = _validation_pairs(run)
    else:
        sources, references = test
        scores = evaluate_translator(
            run.path, translator, sources, references, on_progress=on_progress
        )
        places = _spread([n for n, source in enumerate(sources) if source.strip()], _SAMPLES)
        pairs = [
            (sources[n], tuple(line[n] or "" for line in references if line[n])) for n in places
        ]
        about = "Sentences of the test set, taken at regular intervals."
    translations = translator.translate([source for source, _ in pairs])
    samples = [
        Sample(source=translation.source, translation=translation.text, references=references)
        for translation, (_, references) in zip(translations, pairs, strict=True)
    ]
    return write_report(
        run,
        translator,
        scores=scores,
        samples=samples,
        sentences=_sentences_to_trace(translations),
        about_samples=about,
        out=out,
    )


def write_report(
    run: RunDirectory,
    translator: Translator,
    *,
    scores: RunScores | None,
    samples: list[Sample],
    sentences: list[str],
    about_samples: str = UNSEEN,
    out: Path | None = None,
) -> Path:
    """Write a report from given results, by default as the run's report.html.

    The page shows the attention of `sentences`, each of which must be traceable.
    """
    source, target = run.subwords()
    config = run.config()
    vocab = Vocab(source_size=len(source), target_size=len(target))
    content = render_report(
        Report(
            name=run.path.resolve().name,
            config=config,
            weights=translator.name,
            parameters=config.model.count_parameters(vocab),
            train_pairs=_train_pairs(run),
            scores=None if scores is None else scores.scores,
            perplexity=None if scores is None else scores.perplexity,
            sentences_per_second=None if scores is None else scores.sentences_per_second,
            samples=samples,
            about_samples=about_samples,
            records=[attention_record(translator, sentence) for sentence in sentences],
            curves=load_curves([run.path]) if _has_metrics(run) else None,
            sessions=read_sessions(run.environment_file),
            commands=_commands(run, sentences),
        )
    )
    path, write = (run.path / "report.html", replace_file) if out is None else (out, write_output)
    try:
        # A name or a setting may have characters that UTF-8 cannot encode, such as file name bytes.
        write(path, content.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise RequestError(f"{path}: cannot write the report: {error.strerror}") from error
    return path


def _has_metrics(run: RunDirectory) -> bool:
    """Return whether there are metrics yet: a run may be stopped before the first."""
    has_file = run.folder.has(run.metrics_file.name)
    return has_file and next(iterate_metrics(run.metrics_file), None) is not None


def _validation_pairs(run: RunDirectory) -> tuple[list[_Pair], str]:
    """Return some pairs of the run's validation text, and a sentence about them."""
    source, target = run.subwords()
    shards = own_shards(run, "valid")
    if shards is None:
        return [], (
            "No examples: the text that the run was validated on is not in its directory. "
            "A test set, --src and --ref, gives some."
        )
    if not len(shards):
        return [], "No examples: the run has no validation text."
    pairs: list[_Pair] = []
    for n in _spread(range(len(shards)), _SAMPLES):
        source_ids = shards.checked_sequence("source", n, len(source))
        target_ids = shards.checked_sequence("target", n, len(target))
        if max(len(source_ids), len(target_ids)) <= _LONGEST_SAMPLE:
            pairs.append(
                (source.decode(source_ids.tolist()), (target.decode(target_ids.tolist()),))
            )
    return pairs, (
        "Sentences of the validation text, taken at regular intervals: training did not learn "
        "from them, but was validated on them."
    )


def _spread(places: Sequence[int], count: int) -> list[int]:
    """Choose indices at regular intervals."""
    count = min(count, len(places))
    return [places[n * len(places) // count] for n in range(count)]


def _sentences_to_trace(translations: list[Translation]) -> list[str]:
    return [
        translation.source
        for translation in translations
        if not translation.parts
        and _FEWEST_TOKENS <= len(translation.source_tokens) <= _MOST_TOKENS
    ][:_SENTENCES]


def _train_pairs(run: RunDirectory) -> int | None:
    shards = own_shards(run, "train")
    if shards is not None:
        return len(shards)
    pairs = run.origin().get("train_pairs")
    return pairs if type(pairs) is int and 0 <= pairs < 2**63 else None


def _commands(run: RunDirectory, sentences: list[str]) -> list[tuple[str, str]]:
    """Return three commands to try next, each with a description."""
    data = run.config().data
    source, target = data.source_language or "src", data.target_language or "tgt"
    path = shlex.quote(str(run.path))
    sentence = shlex.quote(sentences[0]) if sentences else '"…"'
    return [
        (
            "Train on text of your own, two files that correspond line by line:",
            f"headwise train multi30k-tiny --src train.{source} --tgt train.{target} "
            "--run runs/mine",
        ),
        (
            "Draw where it looks, as in the paper's figures:",
            f"headwise attention {path} {sentence} --out attention.png",
        ),
        (
            "Evaluate it on a test set:",
            f"headwise evaluate {path} --src test.{source} --ref test.{target}",
        ),
    ]
