"""The recipes that ship with Headwise: a TOML file each, its differences from the base model."""

import difflib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from headwise.config import Config
from headwise.errors import ConfigError
from headwise.recipes.overrides import apply_override, parse_toml

_MOST_BYTES = 32 << 10
"""Of a recipe in a file. One that states every setting has about 1,000, and the time that the TOML
parser takes for a dotted key grows with the square of its length."""


def recipe_names() -> list[str]:
    """List the shipped recipes."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def load_recipe(recipe: str | Path = "base", overrides: Sequence[str] = ()) -> Config:
    """Resolve a shipped recipe's name or a TOML file's path, with overrides laid over it."""
    text, source = _read(recipe)
    return parse_recipe(text, source, overrides)


def parse_recipe(text: str, source: str, overrides: Sequence[str] = ()) -> Config:
    """Resolve the text of a recipe; `source` is how error messages call it."""
    values = parse_toml(text, source)
    for override in overrides:
        values = apply_override(values, override)
    try:
        return Config.from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    except RecursionError as error:  # Dotted keys nest deeper than the parser's own brackets.
        raise ConfigError(f"{source}: a value is nested too deeply") from error


def search_as(config: Config, overrides: Sequence[str]) -> Config:
    """Return a trained run's configuration with other [decode] settings: all that can change."""
    values = config.to_dict()
    for override in overrides:
        values = apply_override(values, override)
        if not override.strip().startswith("decode."):
            raise ConfigError(
                f"--set {override!r}: the run is trained, only its [decode] settings can change"
            )
    return Config.from_dict(values)


def _read(recipe: str | Path) -> tuple[str, str]:
    if str(recipe) in recipe_names():
        return (resources.files(__name__) / f"{recipe}.toml").read_text("utf-8"), f"recipe {recipe}"
    path = Path(recipe)
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(
                f"{path}: larger than the {_MOST_BYTES:,} bytes that a recipe may have: "
                "is this the right file?"
            )
        return content.decode("utf-8-sig"), str(path)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    except ValueError as error:  # A NUL, or a surrogate that stands for no byte.
        raise ConfigError(f"{str(recipe)!r:.100} cannot be the name of a file") from error
    except OSError as error:
        if path.suffix == ".toml" or not isinstance(error, FileNotFoundError):
            raise ConfigError(f"{path}: cannot read this recipe: {error.strerror}") from error
        near = difflib.get_close_matches(str(recipe), recipe_names(), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "see `headwise config --help`"
        raise ConfigError(f"no recipe and no file {str(recipe)!r}: {hint}") from error
