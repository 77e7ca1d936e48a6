"""`headwise reproduce`: the paper's tables, measured here."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwise.cli.output import note, show
from headwise.cli.watch import watch

if TYPE_CHECKING:
    from headwise.inspect.table_page import Grid

F = TypeVar("F", bound=Callable[..., Any])

EPILOG = """\b
Examples:
  headwise reproduce table1        what a layer of each kind costs (a few minutes)
  headwise reproduce table2        what a training costs, by recipe or run
  headwise reproduce table3 --src train.en --tgt train.de --rows A,E
                                   variations on the Transformer, trained
  headwise reproduce baseline --src train.en --tgt train.de
                                   the recurrent models that it replaced
  headwise reproduce figures runs/ende
                                   heads like those of Figures 3 to 5

Each table is written as a page and as JSON. A command that was stopped goes on
where it was when it is run again.
"""

TABLE1_EPILOG = """\b
Examples:
  headwise reproduce table1
  headwise reproduce table1 --lengths 128,512,2048 --widths 64,256 --out t1

Times are measured for every length at the middle width and for every width at
the middle length; longest paths for the lengths of --path-lengths.
"""

TABLE2_EPILOG = """\b
Examples:
  headwise reproduce table2                     base, big and the demo
  headwise reproduce table2 base runs/ende      a recipe beside a trained run

Operations are counted for pairs of sentences of a usual length.
"""

FIGURES_EPILOG = """\b
Examples:
  headwise reproduce figures runs/ende
  headwise reproduce figures runs/ende --text test.en --picture png

Without --text, the sentences are those of the run's validation text.
"""


def out_option(files: str) -> Callable[[F], F]:
    """Return the option that says where the files of a verb go."""
    return click.option(
        "--out",
        metavar="FOLDER",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("reproduce"),
        show_default=True,
        help=f"Where {files} are written.",
    )


def _sizes(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    """Read whole numbers in ascending order."""
    try:
        sizes = tuple(int(part) for part in value.split(","))
    except ValueError:
        sizes = ()
    if len(sizes) < 2 or sizes[0] < 2 or list(sizes) != sorted(set(sizes)):
        raise click.BadParameter(
            f"{value!r}: give two or more whole numbers from 2, in ascending order"
        )
    return sizes


@click.group(epilog=EPILOG)
def reproduce() -> None:
    """Measure what the paper's tables claim, beside what it prints."""


@reproduce.command(epilog=TABLE1_EPILOG)
@click.option(
    "--lengths",
    metavar="N,N,...",
    callback=_sizes,
    default="128,256,512,1024,2048,4096",
    show_default=True,
    help="Lengths n of the input.",
)
@click.option(
    "--widths",
    metavar="N,N,...",
    callback=_sizes,
    default="64,128,256,512,1024",
    show_default=True,
    help="Widths d of the layer.",
)
@click.option(
    "--path-lengths",
    metavar="N,N,...",
    callback=_sizes,
    default="16,64,256",
    show_default=True,
    help="Lengths whose longest path is measured.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How often each time is measured, at least; the best counts.",
)
@out_option("table1.html and table1.json")
def table1(
    lengths: tuple[int, ...],
    widths: tuple[int, ...],
    path_lengths: tuple[int, ...],
    rounds: int,
    out: Path,
) -> None:
    """Measure Table 1: the work and the longest path of each kind of layer."""
    from headwise.files import replace_file
    from headwise.workflows.reproduce.table1 import reproduce_table1
    from headwise.workflows.reproduce.table1_view import table1_grids, table1_page

    if any(width % 64 and width > 64 for width in widths):
        raise click.BadParameter("widths above 64 must be multiples of 64: heads are 64 wide")
    with watch() as watcher:
        table = reproduce_table1(
            out,
            lengths=lengths,
            widths=widths,
            path_lengths=path_lengths,
            rounds=rounds,
            on_progress=watcher.progress,
        )
    page = out / "table1.html"
    replace_file(page, table1_page(table).encode())
    for grid in table1_grids(table):
        show(f"{grid_text(grid)}\n")
    note(f"wrote {page} and {out / 'table1.json'}")


@reproduce.command(epilog=TABLE2_EPILOG)
@click.argument("names", metavar="[RECIPE|RUN]...", nargs=-1)
@out_option("table2.html and table2.json")
def table2(names: tuple[str, ...], out: Path) -> None:
    """Compute Table 2: what trainings cost in operations, beside the paper's figures."""
    from headwise.files import replace_file
    from headwise.workflows.reproduce.table2 import reproduce_table2
    from headwise.workflows.reproduce.table2_view import table2_grids, table2_page

    with watch() as watcher:
        table = reproduce_table2(
            names or ("base", "big", "demo"), out, on_progress=watcher.progress
        )
    page = out / "table2.html"
    replace_file(page, table2_page(table).encode())
    for grid in table2_grids(table):
        show(f"{grid_text(grid)}\n")
    note(f"wrote {page} and {out / 'table2.json'}")


@reproduce.command(epilog=FIGURES_EPILOG)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--text", type=click.Path(path_type=Path), help="A file of sentences, one a line.")
@click.option(
    "--sentences",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Most sentences.",
)
@click.option("--language", help="The source's, for its pronouns; default: the run's.")
@click.option(
    "--picture",
    "pictures",
    type=click.Choice(["pdf", "png", "svg"]),
    multiple=True,
    help="Also write each figure as such a file; needs matplotlib.",
)
@out_option("figures.html and figures.json")
def figures(
    run: Path,
    text: Path | None,
    sentences: int,
    language: str | None,
    pictures: tuple[str, ...],
    out: Path,
) -> None:
    """Find heads of RUN like those of Figures 3 to 5: long distance, reference, structure."""
    from itertools import islice

    from headwise.data import read_lines
    from headwise.runs.directory import RunDirectory
    from headwise.tasks.translation.report import validation_pairs
    from headwise.workflows.reproduce.figures import figures_grids, find_figures, write_figures
    from headwise.workflows.translators import load_translator

    translator = load_translator(run)
    note(f"using {translator.name}")
    if text is None:
        pairs, about = validation_pairs(RunDirectory(run), sentences)
        if not pairs:
            raise click.UsageError(f"{about.replace('--src and --ref', '--text')}")
        lines = [source for source, _ in pairs]
    else:
        lines = list(islice(read_lines(text), sentences))
    with watch() as watcher:
        found = find_figures(
            translator,
            lines,
            language=language or translator.config.data.source_language,
            on_progress=watcher.progress,
        )
    written = write_figures(found, out, kinds=pictures)
    for grid in figures_grids(found):
        show(f"{grid_text(grid)}\n")
    if found.skipped:
        note(f"left out {found.skipped:,} lines that are empty or too long to be shown")
    note(f"wrote {', '.join(map(str, written))}")


def grid_text(grid: "Grid") -> str:
    """Return a table as aligned columns, and its notes."""
    from headwise.evaluation import text_table

    lines = [grid.title, text_table(grid.columns, grid.rows), *grid.notes]
    return "\n".join(line for line in lines if line)
