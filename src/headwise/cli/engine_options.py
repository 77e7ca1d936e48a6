"""The options that choose what computes, the same on every verb that translates."""

from collections.abc import Callable
from typing import Any

import click

_ENGINE = click.option(
    "--engine",
    type=click.Choice(["torch", "ctranslate2"]),
    default="torch",
    show_default=True,
    help="What computes; `headwise export` makes what ctranslate2 needs.",
)
_QUANTIZATION = click.option(
    "--quantization",
    type=click.Choice(["int8", "int16", "float32"]),
    help="Which export; the smallest there is.",
)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `engine` and `quantization`."""
    return _ENGINE(_QUANTIZATION(command))
