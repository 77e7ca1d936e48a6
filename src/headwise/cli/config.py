"""`headwise config`: a recipe with every value filled in, or its departures from the paper."""

import click

from headwise.cli.output import show

EPILOG = """\b
Examples:
  headwise config                      the paper's base model
  headwise config table3-b-dk16        a row of Table 3
  headwise config mine.toml --set model.dropout=0.2
  headwise config mine.toml --paper    what departs from the paper, and where

\b
Shipped recipes: base and big, the paper's; multi30k-tiny, for tens of thousands of
short sentences on a CPU; lm-tiny and gpt, language models; bert-tiny, a masked
language model; text-tiny, vit-tiny and speech-tiny, classifiers of texts, images and
sounds; read-tiny and listen-tiny, transcribers of images and sounds; parsing-wsj and
parsing-semi, the paper's parsers, and parsing-small, one for a CPU; demo,
demo-numbers and demo-reverse, what `headwise demo` trains; and the rows of Table 3
at its vocabulary of 40,960:
  table3-base, table3-big, table3-a-h1 -h4 -h16 -h32, table3-b-dk16 -dk32,
  table3-c-n2 -n4 -n8 -d256 -d1024 -ff1024 -ff4096,
  table3-d-drop0 -drop2 -ls0 -ls2, table3-e-learned
"""


@click.command(epilog=EPILOG)
@click.argument("recipe", default="base")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change one value, as in --set train.max_steps=100. May be given several times.",
)
@click.option("--paper", is_flag=True, help="Print the departures from the paper instead.")
def config(recipe: str, overrides: tuple[str, ...], paper: bool) -> None:
    """Print a recipe with every value filled in.

    RECIPE is a shipped recipe's name or a TOML file; without it, the paper's base model. The output
    is itself a recipe, with the parameter count as a comment.
    """
    from headwise.paper import describe_departures, describe_size
    from headwise.recipes import load_recipe

    resolved = load_recipe(recipe, overrides)
    if paper:
        show(describe_departures(resolved))
    else:
        show(f"# {describe_size(resolved)}\n{resolved.to_toml().rstrip()}")
