"""The options that select an engine, for every verb that translates."""

from collections.abc import Callable
from typing import Any

import click

_ENGINE = click.option(
    "--engine",
    type=click.Choice(["torch", "ctranslate2"]),
    default="torch",
    show_default=True,
    help="The engine; ctranslate2 needs an export made by `headwise export`.",
)
_QUANTIZATION = click.option(
    "--quantization",
    type=click.Choice(["int8", "int16", "float32"]),
    help="Which export; default: the smallest.",
)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `engine` and `quantization`."""
    return _ENGINE(_QUANTIZATION(command))
