"""`headwise evaluate` for language models: perplexity and bits per byte of a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.config import Vocab
from headwise.errors import DataError
from headwise.evaluation.table import text_table
from headwise.tasks.language_model.files import TextFiles, read_text_blocks
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.language_model.records import Documents, RecordEncoder, RecordReader
from headwise.tasks.language_model.scoring import TextScore, score_tokens
from headwise.training.task import Progress
from headwise.visible import visible


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """How one run predicts the text."""

    run: str
    weights: str
    context: int
    score: TextScore

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "run": self.run,
            "weights": self.weights,
            "window": self.context,
            "stride": self.context // 2,
            **self.score.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class TextEvaluation:
    """How several runs predict the same text."""

    runs: tuple[RunScore, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {"runs": [run.to_dict() for run in self.runs]}

    def text(self) -> str:
        """Return a line for one run, a table for several, and how it was measured."""
        first = self.runs[0]
        counts = (
            f"{first.score.tokens:,} tokens, {first.score.words:,} words, "
            f"{first.score.num_bytes:,} bytes; window of {first.context:,} tokens, moved by "
            f"{first.context // 2:,}"
        )
        if len(self.runs) == 1:
            score = first.score
            return (
                f"{visible(first.weights)}: {score.bits_per_byte:.3f} bits a byte, perplexity "
                f"{score.perplexity:.2f} a token, {score.word_perplexity:.2f} a word\n{counts}; "
                f"{score.tokens / score.seconds:,.0f} tokens/s"
            )
        rows = [
            (
                run.run,
                f"{run.score.bits_per_byte:.3f}",
                f"{run.score.perplexity:.2f}",
                f"{run.score.word_perplexity:.2f}",
                f"{run.score.tokens:,}",
                f"{run.context:,}",
                f"{run.score.tokens / run.score.seconds:,.0f}",
            )
            for run in self.runs
        ]
        header = ("run", "bits/byte", "ppl/token", "ppl/word", "tokens", "window", "tokens/s")
        return text_table(header, rows)


def evaluate_runs(
    runs: Sequence[Path],
    files: TextFiles,
    *,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    on_progress: Progress = lambda *_: None,
) -> TextEvaluation:
    """Measure runs on a text, read in bounded memory as their training text was."""
    found = []
    for run in runs:
        generator = Generator.load(run, checkpoint=checkpoint, overrides=overrides)
        score = TextScore()
        context = generator.config.data.context
        tokens = _tokens(generator, files, score)
        for done in score_tokens(generator.model, tokens, context, score):
            on_progress(f"reading with {run.name}", done, None)
        if not score.tokens:
            raise DataError(f"{files.paths[0]}: there is no text to evaluate on")
        found.append(RunScore(run=str(run), weights=generator.name, context=context, score=score))
    return TextEvaluation(runs=tuple(found))


def _tokens(generator: Generator, files: TextFiles, score: TextScore) -> Iterator[list[int]]:
    """Yield the tokens of a text, and count its bytes and words."""
    reader = RecordReader(data=generator.config.data)
    encoder = RecordEncoder(reader=reader, tokenizer=generator.tokenizer)
    documents = Documents()
    yield [Vocab.eos]
    is_after_eos = True
    for block in read_text_blocks(files, lenient=False):
        pieces, _ = encoder.encode(block)
        for piece in pieces:
            continues = documents.continues(piece)
            score.num_bytes += piece.num_bytes
            score.words += piece.words
            if not piece.num_lines:
                continue
            if not is_after_eos:
                yield [generator.tokenizer.line_break if continues else Vocab.eos]
            yield piece.ids.tolist()
            is_after_eos = False
    if not is_after_eos:
        yield [Vocab.eos]
