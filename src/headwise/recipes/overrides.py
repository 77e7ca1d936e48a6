"""Recipes as text: TOML tables, and single values laid over them."""

import tomllib
from typing import Any

from headwise.config import all_keys, unknown_key
from headwise.errors import ConfigError


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Parse a recipe; `source` is how error messages call it."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, or 5,000 digits, or brackets.
        raise ConfigError(f"{source}: not valid TOML: {error}") from error


def apply_override(values: dict[str, Any], override: str) -> dict[str, Any]:
    """Return the recipe's tables with one `section.key=value` laid over them.

    The value is read as TOML; what is not TOML is a string, so that words need no quotes.
    """
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals:
        raise ConfigError(f"--set {override!r}: write it as section.key=value")
    valid = all_keys(values.get("task", "translation"))
    if key not in valid:
        raise ConfigError(f"--set {override!r}: {unknown_key(key, valid)}")
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        parsed = {"value": text.strip()}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set {key}: {error}") from error
    if list(parsed) != ["value"]:
        raise ConfigError(f"--set {override!r}: one value at a time")
    value = parsed["value"]
    section, dot, name = key.partition(".")
    if not dot:
        return {**values, key: value}
    table = values.get(section, {})
    return {**values, section: {**table, name: value} if isinstance(table, dict) else table}
