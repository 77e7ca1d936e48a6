"""`headwise explain`: one head of attention, step by step."""

from pathlib import Path

import click

EPILOG = """\b
Examples:
  headwise explain                        a worked example of two tokens
  headwise explain mine.toml              your own matrices
  headwise explain mine.json --html page.html

\b
A file of matrices, TOML or JSON:
  X  = [[1, 0, 1, 0], [0, 1, 0, 1]]       one row for each token
  Wq = [[0.1, 0.2], ...]                  and Wk, Wv; or Q, K, V instead of the four
  tokens = ["the", "cat"]                 optional names
  causal = true                           optional: hide later tokens
"""


@click.command(epilog=EPILOG)
@click.argument("matrices", required=False, type=click.Path(path_type=Path))
@click.option(
    "--html",
    "page",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the walk as a web page instead.",
)
def explain(matrices: Path | None, page: Path | None) -> None:
    """Walk through one head of attention with every number shown.

    MATRICES is a TOML or JSON file; without it, a small worked example is explained.
    """
    from headwise.inspect.explain import load_head, walk

    steps = walk(load_head(matrices))
    if page is None:
        from rich.console import Console

        from headwise.inspect.terminal import print_steps

        print_steps(steps, Console(highlight=False))
        return

    from headwise.errors import RequestError
    from headwise.inspect.page import render_page

    try:
        page.write_text(render_page(steps), "utf-8")
    except OSError as error:
        raise RequestError(f"{page}: cannot write the page: {error.strerror}") from error
    click.echo(f"wrote {page}", err=True)
