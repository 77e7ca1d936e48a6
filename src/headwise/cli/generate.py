"""`headwise generate`: continue prompts, or lines from stdin, with a language model."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from headwise.cli.output import note
from headwise.cli.streams import reader_is_gone, standard_input, standard_output, write_whole
from headwise.cli.text_options import FILE
from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.tasks.language_model.generator import Generation

EPILOG = """\b
Examples:
  headwise generate runs/lm --prompt "The castle"
  headwise generate runs/lm --prompt "The castle" --temperature 0.7 --top-p 0.9 --count 3
  headwise generate runs/lm --prompt "" --max-tokens 1000 --seed 2     a new document
  headwise generate runs/lm --prompt "The castle" --temperature 0      the most probable tokens
  headwise generate runs/lm < prompts.txt > continuations.txt          a filter: a line for each
  headwise generate runs/lm --json < prompts.txt

What follows the prompt is printed: of one prompt, as it comes. Several continuations
are a line each, in which a line break is written \\n, a tab \\t and a backslash \\\\. Of
a filter, those of one line are separated by tabs.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.option("--prompt", "prompts", multiple=True, help="What to continue; may be repeated.")
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    help="Below 1 draws what is probable more often; 0 takes the most probable.",
)
@click.option(
    "--top-k",
    type=click.IntRange(min=0),
    help="Draw from this many tokens, the most probable; 0: from all.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(min=0, max=1, min_open=True),
    help="Draw from the fewest tokens that have this much probability.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, help="What to draw.")
@click.option("--beam", type=click.IntRange(min=0), help="Search with so many hypotheses instead.")
@click.option("--count", type=click.IntRange(min=1), default=1, help="Continuations of each.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Most tokens of a continuation.")
@click.option("--ignore-end", is_flag=True, help="Do not stop at the end of a document.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each prompt.")
@click.option("--lenient", is_flag=True, help="Replace bytes that are not text.")
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a [decode] setting."
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
def generate(
    run: Path,
    prompts: tuple[str, ...],
    checkpoint: str | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    beam: int | None,
    count: int,
    max_tokens: int | None,
    ignore_end: bool,
    as_json: bool,
    lenient: bool,
    overrides: tuple[str, ...],
    device: str,
) -> None:
    """Continue a text with a trained language model.

    Without --prompt, each line of stdin is a prompt.
    """
    from headwise.tasks.language_model.generator import Generator
    from headwise.workflows.line_filter import translate_lines

    generator = Generator.load(run, checkpoint=checkpoint, device=device, overrides=overrides)
    settings = generator.settings(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        beam=beam,
        count=count,
        max_tokens=max_tokens,
        stop_at_end=not ignore_end,
    )
    note(f"using {generator.name}")
    writing = standard_output("let it go somewhere")

    def lines_of(texts: list[str], first: int) -> list[str]:
        found = generator.generate_all(texts, settings, first=first)
        return [_line(each, "\n" if prompts else "\t", as_json) for each in found]

    try:
        if len(prompts) == count == 1 and not settings.beam and not as_json:
            pieces = generator.stream(
                prompts[0],
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                max_tokens=max_tokens,
                stop_at_end=not ignore_end,
            )
            for piece in pieces:
                write_whole(writing, _shown(piece, writing).encode())
            write_whole(writing, b"\n")
        elif prompts:
            for first, prompt in enumerate(prompts):
                (line,) = lines_of([prompt], first)
                write_whole(writing, f"{line}\n".encode())
        else:
            translate_lines(
                standard_input("give prompts with --prompt"),
                "stdin",
                lines_of,
                lambda content: write_whole(writing, content),
                lenient=lenient,
                on_progress=lambda _: None,
            )
    except BrokenPipeError:
        raise reader_is_gone() from None


def _shown(piece: str, writing: BinaryIO) -> str:
    """Return text for a terminal, or as it is for anything else."""
    return visible(piece, keep="\n\t") if writing.isatty() else piece


def _line(generation: "Generation", separator: str, as_json: bool) -> str:
    if not as_json:
        return separator.join(_escaped(sample.text) for sample in generation.samples)
    samples = [
        {
            "text": sample.text,
            "log_prob": sample.log_prob,
            "ended": sample.is_ended,
            "tokens": sample.tokens,
        }
        for sample in generation.samples
    ]
    return json.dumps({"prompt": generation.prompt, "samples": samples}, ensure_ascii=False)


def _escaped(text: str) -> str:
    """Return a text on one line and without tabs."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    return text.replace("\r", "\\r")
