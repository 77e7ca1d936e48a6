"""Which kind of input a config is of."""

from headwise.config import AnyConfig
from headwise.tasks.classification.audio import AUDIO
from headwise.tasks.classification.encoders import InputKind
from headwise.tasks.classification.images import IMAGES
from headwise.tasks.classification.text import TEXT

_KINDS: dict[str, InputKind] = {"text": TEXT, "images": IMAGES, "audio": AUDIO}


def kind_of(config: AnyConfig) -> InputKind:
    """Return the kind that `data.input` names."""
    return _KINDS[config.row.input]
