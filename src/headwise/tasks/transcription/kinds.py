"""Which kind of input a config is of."""

from headwise.config import AnyConfig
from headwise.tasks.encoders import InputKind
from headwise.tasks.transcription.lines import LINES
from headwise.tasks.vectors.audio import AUDIO

_KINDS: dict[str, InputKind] = {"images": LINES, "audio": AUDIO}


def kind_of(config: AnyConfig) -> InputKind:
    """Return the kind that `data.input` names."""
    return _KINDS[config.row.input]
