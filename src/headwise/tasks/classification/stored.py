"""Examples of a run's own data, as its classifier reads them."""

from headwise.data import TokenShards
from headwise.errors import DataError
from headwise.tasks.classification.classes import LABEL
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.kinds import kind_of
from headwise.tasks.encoders import Encoded


def stored_example(shards: TokenShards, number: int, classifier: Classifier) -> Encoded:
    """Return an example."""
    stream, stored = kind_of(classifier.config).stream, classifier.encoder.stored
    if isinstance(stored, int):
        return Encoded(shards.checked_sequence(stream, number, stored))
    values = shards.sequence(stream, number)
    # Images are all of one size; sounds are not.
    patches = classifier.config.data.longest - 1
    is_odd = classifier.input == "images" and len(values) != patches
    if values.ndim != 2 or values.shape[1] != stored.width or is_odd:
        raise DataError(f"{shards.directory}: {stream} is not of this run: prepare it anew")
    return Encoded(values)


def stored_labels(shards: TokenShards, number: int, classifier: Classifier) -> list[int]:
    """Return the numbers of its classes."""
    given: list[int] = shards.checked_sequence(LABEL, number, len(classifier.classes)).tolist()
    return [n for n, bit in enumerate(given) if bit] if classifier.is_multi_label else given
