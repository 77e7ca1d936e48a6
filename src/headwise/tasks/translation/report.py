"""A translation run, described for its report."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.config import DataConfig
from headwise.evaluation import Interval, read_corpus, refuse_nul
from headwise.languages import language_name
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.report import Cell, Contents, Figure
from headwise.tasks.translation.scores import RunScores, evaluate_translator
from headwise.tasks.translation.translator import Translation, Translator
from headwise.training.task import Progress

_SAMPLES, _SENTENCES = 10, 5
_FEWEST_TOKENS, _MOST_TOKENS = 4, 25
"""Of a sentence whose attention is shown: neither trivial nor too large for a screen."""

_LONGEST_SAMPLE = 1000
"""Tokens of a sentence that a page shows."""

_Pair = tuple[str, tuple[str, ...]]
"""A source and its references."""

UNSEEN = "Sentences that training never saw, as they come."

_UNSCORED = (
    "Not scored yet. `headwise report` with `--src` and `--ref`, a test set and its translations, "
    "adds BLEU and chrF."
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sentence, our translation and the translations it is compared with."""

    source: str
    translation: str
    references: tuple[str, ...]


def report_contents(
    run: RunDirectory, translator: Translator, values: Mapping[str, Any], on_progress: Progress
) -> Contents:
    """Describe a run, scored on the test set of --src and --ref if they are given.

    Without a test set, the samples are some of the validation pairs in the run's own directory, if
    there are any.
    """
    scores = None
    if values.get("source") is None:
        pairs, about = validation_pairs(run, _SAMPLES)
    else:
        sources, references = read_corpus(values["source"], values["references"])
        refuse_nul(sources, values["source"])
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
    return contents_of(
        run,
        scores=scores,
        samples=samples,
        sentences=_sentences_to_trace(translations) if translator.can_align else [],
        about_samples=about,
    )


def contents_of(
    run: RunDirectory,
    *,
    scores: RunScores | None,
    samples: Sequence[Sample],
    sentences: Sequence[str],
    about_samples: str = UNSEEN,
) -> Contents:
    """Describe a run by given results; `sentences` are those whose attention is shown."""
    data = run.config().data
    title = ""
    if data.source_language and data.target_language:
        title = f"{language_name(data.source_language)} to {language_name(data.target_language)}"
    pairs = _train_pairs(run)
    figures, about_scores, notes = _scored(scores) if scores else ((), _UNSCORED, ())
    return Contents(
        title=title,
        does=f"translates {title or 'text to text'}",
        trained_on=None if pairs is None else (pairs, "pairs of sentences"),
        scores=figures,
        about_scores=about_scores,
        notes=notes,
        samples=tuple(_cells(sample, data) for sample in samples),
        about_samples=about_samples,
        traced=tuple(sentences),
        commands=_commands(run, data, sentences),
    )


def _scored(found: RunScores) -> tuple[tuple[Figure, ...], str, tuple[str, ...]]:
    """Return the scores, a sentence about them, and the small print."""
    scores = found.scores
    figures = [
        Figure(name="BLEU", value=f"{scores.bleu.value:.1f}", more=_interval(scores.bleu.interval)),
        Figure(name="chrF", value=f"{scores.chrf.value:.1f}", more=_interval(scores.chrf.interval)),
    ]
    if found.perplexity is not None:
        figures.append(Figure(name="Perplexity", value=f"{found.perplexity:.2f}", more="a token"))
    speed = f"{found.sentences_per_second:.0f}"
    figures.append(Figure(name="Translating", value=speed, more="sentences a second"))
    count = scores.references
    references = "one reference" if count == 1 else f"up to {count} references"
    about = (
        f"On {scores.sentences:,} sentences with {references} each. BLEU compares words and "
        "runs of words with the references, chrF runs of letters; both go up to 100."
    )
    notes = [
        f"BLEU `{scores.bleu.signature}`",
        f"chrF `{scores.chrf.signature}`",
        *(f"Note: {note}." for note in scores.notes),
    ]
    return tuple(figures), about, tuple(notes)


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ""
    low, high = interval.mean - interval.margin, interval.mean + interval.margin
    return f"95 % sure: {low:.1f} to {high:.1f}"


def _cells(sample: Sample, data: DataConfig) -> tuple[Cell, ...]:
    source, target = data.source_language, data.target_language
    return (
        Cell(label=language_name(source) or "Source", text=sample.source, language=source),
        Cell(
            label=f"{language_name(target) or 'Target'}, translated",
            text=sample.translation,
            language=target,
            is_output=True,
        ),
        Cell(label="Reference", text="\n".join(sample.references), language=target),
    )


def validation_pairs(run: RunDirectory, count: int) -> tuple[list[_Pair], str]:
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
    for n in _spread(range(len(shards)), count):
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


def _commands(
    run: RunDirectory, data: DataConfig, sentences: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return three commands to try next, each with a description."""
    source, target = data.source_language or "src", data.target_language or "tgt"
    path = shlex.quote(str(run.path))
    sentence = shlex.quote(sentences[0]) if sentences else '"…"'
    return (
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
    )
