"""Where training stands: everything but the tensors that a resumed run needs to go on."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Self, get_type_hints


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """What a checkpoint's state.json holds. Randomness is keyed, so there is no generator in it."""

    step: int = 0
    """Updates made."""
    epoch: int = 0
    """The pass over the data that the next batch belongs to, from 0."""
    batch: int = 0
    """How many of that pass's batches have been used."""
    batches_per_update: int = 1
    """Batches of all processes together that make one update."""
    tokens: int = 0
    """Target tokens trained on."""
    minutes: float = 0.0
    """Wall clock spent training."""
    due_minutes: float = 0.0
    """The wall clock when a checkpoint was last due and saved."""
    interrupted: bool = False
    """Whether this was saved because training was told to stop, not because it was due: such a
    checkpoint is for going on from, not for averaging."""
    score: str = "score"
    """What the number is called that decides, before the loss, which checkpoint is best: "bleu"."""
    valid_loss: float = math.inf
    """Smoothed loss on the validation data at this step; inf where there was no validation."""
    valid_score: float = -math.inf
    """That number at this step; -inf where it was not measured."""
    best_loss: float = math.inf
    """The loss of the best checkpoint so far: the one with the highest score or lowest loss."""
    best_score: float = -math.inf
    """Its score."""
    best_step: int = 0
    """Its step; 0 before any."""
    validations_since_best: int = 0
    """Validations since then, none of them better."""

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Rebuild a state; anything but the right keys and types is a ValueError."""
        hints = get_type_hints(cls)
        values = _with_score(values)
        if not isinstance(values, dict) or set(values) != set(hints):
            raise ValueError("its keys are not those of a training state")
        for key, kind in hints.items():
            if type(values[key]) is not kind:
                raise ValueError(f"{key} = {values[key]!r} is not of type {kind.__name__}")
            if kind is int and not 0 <= values[key] < 2**63:
                raise ValueError(f"{key} = {values[key]!r} is out of range")
        for key in ("minutes", "due_minutes"):
            if not 0 <= values[key] < math.inf:
                raise ValueError(f"{key} = {values[key]!r} is out of range")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON can hold it."""
        values = dataclasses.asdict(self)
        score = values.pop("score")
        for key in _SCORE_KEYS:
            values[f"{key}{score}"] = values.pop(f"{key}score")
        return values


_SCORE_KEYS = ("valid_", "best_")
"""In the file, the score is called by its name: valid_bleu, best_bleu."""


def _with_score(values: Any) -> Any:
    """Return the values of a file with the score's name apart from its keys."""
    if not isinstance(values, dict):
        return values
    names = [key for key in values if key.startswith("valid_") and key != "valid_loss"]
    score = names[0].removeprefix("valid_") if len(names) == 1 else ""
    if not score.isidentifier():
        return values
    named = {f"{key}{score}": f"{key}score" for key in _SCORE_KEYS}
    return {"score": score, **{named.get(key, key): value for key, value in values.items()}}
