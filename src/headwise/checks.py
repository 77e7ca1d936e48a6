"""Checks that a section of the config makes of itself, each with an error that names the key."""

import math
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from headwise.errors import ConfigError

_TYPE_NAMES: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
}


def check_types(section: Any) -> None:
    """Check each field of a section against its annotation; whole numbers will do for a float."""
    for key, kind in get_type_hints(type(section)).items():
        if get_origin(kind) is ClassVar:
            continue
        value = getattr(section, key)
        if type(value) is int and abs(value) >= 2**63:
            raise ConfigError(f"{section.name}.{key} is too large a number")
        if type(value) is str and not _is_text(value):
            raise ConfigError(f"{section.name}.{key} = {value!r} is not UTF-8 text")
        if kind is float and type(value) is int:
            object.__setattr__(section, key, float(value))
        elif get_origin(kind) is Literal:
            choices = ", ".join(map(repr, get_args(kind)))
            require(section, key, value in get_args(kind), f"one of {choices}")
        else:
            require(section, key, type(value) is kind, _TYPE_NAMES[kind])


def _is_text(value: str) -> bool:
    """Return whether it can be written: not with the bytes of an argument that are no text."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def require(section: Any, key: str, holds: bool, expected: str) -> None:
    """Raise ConfigError with what the key is and what it must be, unless the condition holds."""
    if not holds:
        name, value = f"{section.name}.{key}", getattr(section, key)
        raise ConfigError(f"{name} = {value!r} must be {expected}")


def require_at_least(section: Any, least: int, *keys: str) -> None:
    """Require numbers no smaller than `least`."""
    for key in keys:
        require(section, key, getattr(section, key) >= least, f"at least {least}")


def require_at_most(section: Any, most: int, *keys: str) -> None:
    """Require numbers no larger than `most`: what is, is a slip, and found out here at once."""
    for key in keys:
        require(section, key, getattr(section, key) <= most, f"at most {most:,}")


def require_share(section: Any, *keys: str) -> None:
    """Require numbers from 0 to below 1."""
    for key in keys:
        require(section, key, 0.0 <= getattr(section, key) < 1.0, "at least 0 and below 1")


def require_not_negative(section: Any, *keys: str) -> None:
    """Require finite numbers from 0."""
    for key in keys:
        value = getattr(section, key)
        require(section, key, value >= 0 and math.isfinite(value), "a number, 0 or more")
