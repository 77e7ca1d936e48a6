"""`headwise translate`: translate arguments, or lines from stdin or a file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.engine_options import engine_options
from headwise.cli.line_filter import filter_lines, require_one_input
from headwise.cli.output import error_line, note
from headwise.cli.text_options import FILE
from headwise.config import STRONGEST_PENALTY
from headwise.errors import DataError

if TYPE_CHECKING:
    from headwise.tasks.translation.translator import Translation, Translator
    from headwise.workflows.translators import EngineName, Quantization

EPILOG = """\b
Examples:
  headwise translate runs/ende "A man sleeps." "A dog runs."
  headwise translate runs/ende < in.en > out.de
  headwise translate runs/ende --input in.en --output out.de --beam 8
  headwise translate runs/ende --nbest 4 --scores < in.en     candidates, tab-separated
  headwise translate runs/ende --json < in.en                 tokens, scores, alignment
  headwise translate runs/ende --split < articles.txt         paragraphs, sentence by sentence
  headwise translate runs/ende --score < pairs.tsv            log-probability of each pair
  headwise translate runs/ende --begun < pairs.tsv            source TAB how it must begin
  headwise translate runs/ende --set decode.stop=count < in.en

Each sentence, or each line of the input, gives one line of output. Without sentences
and --input, lines are read from stdin; at a terminal, each is translated at once.
Put -- before a sentence that begins with a dash.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.argument("sentences", metavar="[SENTENCE]...", nargs=-1)
@click.option("--input", "source", type=FILE, help="Read from a file instead of stdin.")
@click.option("--output", "target", type=FILE, help="Write to a file instead of stdout.")
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option("--beam", type=click.IntRange(min=1), help="Hypotheses kept open.")
@click.option(
    "--alpha",
    type=click.FloatRange(min=0, max=STRONGEST_PENALTY),
    help="Strength of the length penalty.",
)
@click.option("--nbest", type=click.IntRange(min=1), default=1, help="Candidates of each line.")
@click.option(
    "--min-length", type=click.IntRange(min=0), default=0, help="Fewest tokens of a translation."
)
@click.option("--scores", is_flag=True, help="Put its score before each candidate.")
@click.option("--tsv", is_flag=True, help="Put the source before its translation.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each line.")
@click.option("--score", "only_score", is_flag=True, help="Score pairs: source TAB target.")
@click.option("--begun", is_flag=True, help="Lines are source TAB beginning of the translation.")
@click.option("--split", is_flag=True, help="Lines are paragraphs: translate their sentences.")
@click.option("--sample", is_flag=True, help="Sample instead of searching for the best.")
@click.option(
    "--temperature",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="With --sample: below 1 prefers probable tokens.",
)
@click.option(
    "--top-k",
    type=click.IntRange(min=0),
    default=0,
    help="With --sample: draw from this many of the most probable tokens; 0: from all.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=1.0,
    help="With --sample: draw from the fewest tokens with this much probability.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, help="With --sample: the random seed."
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Sentences searched at a time.")
@click.option("--lenient", is_flag=True, help="Replace bytes that are not UTF-8 text.")
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a [decode] setting."
)
@engine_options
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
def translate(
    run: Path,
    sentences: tuple[str, ...],
    source: Path | None,
    target: Path | None,
    checkpoint: str | None,
    beam: int | None,
    alpha: float | None,
    nbest: int,
    min_length: int,
    scores: bool,
    tsv: bool,
    as_json: bool,
    only_score: bool,
    begun: bool,
    split: bool,
    sample: bool,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    batch_size: int | None,
    lenient: bool,
    overrides: tuple[str, ...],
    engine: "EngineName",
    quantization: "Quantization | None",
    device: str,
) -> None:
    """Translate sentences, or the lines of a text, with a trained run."""
    require_one_input(sentences, source)

    from headwise.decoding import SamplingSettings
    from headwise.workflows.translators import load_translator

    translator = load_translator(
        run,
        engine=engine,
        quantization=quantization,
        checkpoint=checkpoint,
        device=device,
        batch_size=batch_size,
        overrides=overrides,
    )
    note(f"using {translator.name}")
    sampling = None
    if sample:
        sampling = SamplingSettings(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    too_long = 0

    def lines_of(texts: list[str], first: int, name: str) -> list[str]:
        nonlocal too_long
        if only_score:
            pairs = _pairs(texts, first, name, "target")
            return [f"{log_prob:.6f}" for log_prob in translator.score(pairs)]
        prefixes = None
        if begun:
            pairs = _pairs(texts, first, name, "beginning")
            texts, prefixes = [source for source, _ in pairs], [prefix for _, prefix in pairs]
        translations = translator.translate(
            texts,
            beam=beam,
            alpha=alpha,
            nbest=nbest,
            min_length=min_length,
            split=split,
            sampling=sampling,
            first=first,
            prefixes=prefixes,
        )
        if not split:
            too_long += sum(bool(translation.parts) for translation in translations)
        return [_line(translator, t, scores, tsv, as_json) for t in translations]

    filter_lines(sentences, source, target, lines_of, lenient=lenient, doing="translating")
    if too_long:
        lines = "1 line was" if too_long == 1 else f"{too_long:,} lines were"
        error_line(
            f"{lines} longer than the {translator.longest_source:,} tokens that training may have "
            "seen, and translated in parts"
        )


def _line(
    translator: "Translator", translation: "Translation", scores: bool, tsv: bool, as_json: bool
) -> str:
    if as_json:
        return json.dumps(_as_json(translator, translation), ensure_ascii=False)
    fields = [translation.source] if tsv else []
    for candidate in translation.candidates:
        fields += [f"{candidate.score:.4f}"] if scores else []
        fields.append(candidate.text)
    # A tab within a text would shift the columns after it.
    return fields[0] if len(fields) == 1 else "\t".join(f.replace("\t", " ") for f in fields)


def _as_json(translator: "Translator", translation: "Translation") -> dict[str, Any]:
    return {
        "source": translation.source,
        "source_tokens": translation.source_tokens,
        "translation": translation.text,
        "candidates": [
            {
                "text": candidate.text,
                "score": candidate.score,
                "log_prob": candidate.log_prob,
                "tokens": candidate.tokens,
            }
            for candidate in translation.candidates
        ],
        "alignment": translator.alignment(translation) if translator.can_align else None,
    }


def _pairs(lines: list[str], first: int, name: str, second: str) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(lines, start=first + 1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise DataError(f"{name}:{number}: {len(fields)} columns, not source TAB {second}")
        pairs.append((fields[0], fields[1]))
    return pairs
