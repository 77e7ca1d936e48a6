"""Which kind of input a config is of."""

from headwise.config import AnyConfig
from headwise.tasks.classification.text import TEXT
from headwise.tasks.encoders import InputKind
from headwise.tasks.vectors.audio import AUDIO
from headwise.tasks.vectors.images import IMAGES

_KINDS: dict[str, InputKind] = {"text": TEXT, "images": IMAGES, "audio": AUDIO}


def kind_of(config: AnyConfig) -> InputKind:
    """Return the kind that `data.input` names."""
    return _KINDS[config.row.input]
