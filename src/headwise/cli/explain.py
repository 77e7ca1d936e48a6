"""`headwise explain`: one head of attention, step by step."""

import shutil
from pathlib import Path
from typing import Any

import click

from headwise.cli.output import note, show_styled

EPILOG = """\b
Examples:
  headwise explain                  a worked example of two tokens
  headwise explain mine.toml        your own matrices
  headwise explain mine.json --html page.html

\b
A file of matrices, TOML or JSON:
  X  = [[1, 0, 1, 0], [0, 1, 0, 1]] one row for each token
  Wq = [[0.1, 0.2], ...]            and Wk, Wv; or Q, K, V instead of the four
  tokens = ["the", "cat"]           optional names
  causal = true                     optional: hide later tokens
"""

_STYLES: dict[str, dict[str, Any]] = {
    "title": {"bold": True},
    "formula": {"fg": "cyan"},
    "worked": {"fg": "green"},
}


@click.command(epilog=EPILOG)
@click.argument("matrices", required=False, type=click.Path(path_type=Path))
@click.option(
    "--html",
    "page",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write a web page instead.",
)
def explain(matrices: Path | None, page: Path | None) -> None:
    """Explain one head of attention step by step, with numbers.

    MATRICES is a TOML or JSON file; without it, a small worked example is explained.
    """
    from headwise.inspect.explain import load_head, walk

    steps = walk(load_head(matrices))
    if page is not None:
        from headwise.inspect.explain_page import write_page

        write_page(steps, page)
        note(f"wrote {page}")
        return

    from headwise.inspect.explain_text import lines_of

    width = shutil.get_terminal_size().columns
    lines = lines_of(steps, width)
    show_styled("\n".join(click.style(line.text, **_STYLES.get(line.role, {})) for line in lines))
