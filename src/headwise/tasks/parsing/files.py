"""Files of trees, with how often each tree is seen in an epoch."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from headwise.data.text import file_size
from headwise.errors import ConfigError

_WEIGHTED = re.compile(r"(.+):(\d+(?:\.\d+)?)", re.ASCII | re.DOTALL)
_LEAST_WEIGHT, _LARGEST_WEIGHT = 0.01, 1000.0


@dataclass(frozen=True, kw_only=True)
class TreeFiles:
    """Files of bracketed trees."""

    paths: tuple[Path, ...]
    weights: tuple[float, ...]
    """How often each tree of a file is seen in an epoch. 0.5 is half of its trees, 2.5 all of them
    twice and half of them once more; the seed decides which."""

    def __post_init__(self) -> None:
        for path, weight in zip(self.paths, self.weights, strict=True):
            if not (math.isfinite(weight) and _LEAST_WEIGHT <= weight <= _LARGEST_WEIGHT):
                raise ConfigError(
                    f"{path}: its weight {weight:g} must be from {_LEAST_WEIGHT:g} to "
                    f"{_LARGEST_WEIGHT:g}"
                )

    @classmethod
    def of(cls, *paths: str | Path) -> Self:
        """Name files, all of weight 1."""
        return cls(paths=tuple(map(Path, paths)), weights=(1.0,) * len(paths))

    @classmethod
    def weighted(cls, arguments: Sequence[Path]) -> Self:
        """Name files as FILE or FILE:WEIGHT. A name that ends in a number needs FILE:9:1."""
        found = [_WEIGHTED.fullmatch(str(argument)) for argument in arguments]
        return cls(
            paths=tuple(
                Path(match[1]) if match else argument
                for match, argument in zip(found, arguments, strict=True)
            ),
            weights=tuple(float(match[2]) if match else 1.0 for match in found),
        )

    def describe(self) -> list[Any]:
        """Return the files' names, sizes and weights."""
        return [
            [path.name, file_size(path), weight]
            for path, weight in zip(self.paths, self.weights, strict=True)
        ]
