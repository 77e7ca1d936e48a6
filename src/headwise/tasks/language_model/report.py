"""A language model's run, described for its report."""

import shlex
from collections.abc import Mapping
from typing import Any

from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.language_model.evaluation import evaluate_runs
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.language_model.inputs import text_files
from headwise.tasks.language_model.text_tokenizer import STREAM
from headwise.tasks.report import Cell, Contents, Figure
from headwise.training.task import Progress

_SAMPLES, _TRACED = 6, 3
_PROMPT_TOKENS, _CONTINUATION_TOKENS, _TRACED_TOKENS = 24, 40, 16

_UNSCORED = "Not scored yet. `headwise report` with `--text`, a test text, adds bits per byte."


def report_contents(
    run: RunDirectory, generator: Generator, values: Mapping[str, Any], on_progress: Progress
) -> Contents:
    """Describe a run; it is scored on the text of --text if that is given.

    Samples continue parts of the validation text in the run's own directory, if it is there.
    """
    prompts, originals, traced = _validation_text(run, generator)
    settings = generator.settings(max_tokens=_CONTINUATION_TOKENS, stop_at_end=False)
    found = generator.generate_all(prompts, settings)
    samples = tuple(
        (
            Cell(label="Prompt", text=prompt),
            Cell(label="Continued", text=generation.text, is_output=True),
            Cell(label="As it was written", text=original),
        )
        for prompt, generation, original in zip(prompts, found, originals, strict=True)
    )
    about = "Parts of the validation text at regular intervals, continued by sampling."
    if not samples:
        about = "No examples: the text that the run was validated on is not in its directory."
    scores, about_scores = _scores(run, values, on_progress)
    blocks = run.origin().get("train_tokens")
    trained_on = (blocks, "tokens of text") if type(blocks) is int and 0 < blocks < 2**63 else None
    path = shlex.quote(str(run.path))
    return Contents(
        does="continues text",
        trained_on=trained_on,
        scores=scores,
        about_scores=about_scores,
        samples=samples,
        about_samples=about,
        traced=traced,
        commands=(
            ("Continue a text:", f'headwise generate {path} --prompt "…"'),
            ("Measure it on a text:", f"headwise evaluate {path} --text test.txt"),
            (
                "Train on text of your own:",
                "headwise train lm-tiny --text book.txt --run runs/mine",
            ),
        ),
    )


def _scores(
    run: RunDirectory, values: Mapping[str, Any], on_progress: Progress
) -> tuple[tuple[Figure, ...], str]:
    files = text_files(values, "text")
    if files is None:
        return (), _UNSCORED
    evaluation = evaluate_runs(
        [run.path], files, checkpoint=None, overrides=(), on_progress=on_progress
    )
    score = evaluation.runs[0].score
    figures = (
        Figure(name="Bits per byte", value=f"{score.bits_per_byte:.3f}"),
        Figure(name="Perplexity", value=f"{score.perplexity:.2f}", more="a token"),
        Figure(name="Perplexity", value=f"{score.word_perplexity:.2f}", more="a word"),
    )
    return figures, f"On {score.tokens:,} tokens of {score.num_bytes:,} bytes of text."


def _validation_text(
    run: RunDirectory, generator: Generator
) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Return prompts, what follows them in the validation text, and texts to trace."""
    shards = own_shards(run, "valid")
    prompts, originals, traced = [], [], []
    count = 0 if shards is None else min(_SAMPLES, len(shards))
    tokenizer, eos = generator.tokenizer, generator.model.vocab.eos
    for number in range(count):
        assert shards is not None
        place = number * len(shards) // count
        ids = shards.checked_sequence(STREAM, place, len(tokenizer)).tolist()
        # From the start of a document, if one starts in this block.
        start = ids.index(eos) + 1 if eos in ids else 0
        prompt = ids[start : start + _PROMPT_TOKENS]
        original = ids[start + _PROMPT_TOKENS : start + _PROMPT_TOKENS + _CONTINUATION_TOKENS]
        text = tokenizer.decode(prompt)
        if not original or not text.strip() or "\ufffd" in text:
            continue
        prompts.append(text)
        originals.append(tokenizer.decode(original))
        first = tokenizer.decode(prompt[:_TRACED_TOKENS])
        if first.strip() and "\ufffd" not in first:
            traced.append(first)
    return prompts, originals, tuple(traced[:_TRACED])
