"""Validation results in words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.training.validation import ValidationResult

_WORDS = {
    "loss": "loss {:.3f}",
    "nll": "NLL {:.3f}",
    "perplexity": "perplexity {:.2f} a token",
    "word_perplexity": "{:.2f} a word",
    "bits_per_byte": "{:.3f} bits a byte",
    "bleu": "BLEU {:.1f}",
    "f1": "F1 {:.1f}",
    "character_accuracy": "character accuracy {:.1f} %",
    "exact": "exactly right {:.1f} %",
    "tagging_accuracy": "tagging {:.1f} %",
}
"""How well-known numbers are written; those not named here by their own name."""

_COUNTS = ("tokens", "words", "bytes")
"""What says nothing about the model."""


def figures(result: "ValidationResult") -> list[str]:
    """Write every number that says how good a model is."""
    return [
        _WORDS.get(name, f"{name.replace('_', ' ')} {{:.4g}}").format(value)
        for name, value in result.to_dict().items()
        if name not in _COUNTS
    ]
