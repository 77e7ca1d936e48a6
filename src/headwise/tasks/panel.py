"""A task on the server's web page."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """A form with one text box, or a place for a file, and the answer to it."""

    title: str
    label: str
    """What to write into the text box, or what file to choose."""
    button: str
    field: str
    """The field of the request that takes the text or the file."""
    result: str
    """The field of the answer that is shown."""
    input: Literal["text", "image", "sound"] = "text"
    """What the request takes. A sound can be recorded, and an image that has a class drawn."""
    kind: Literal["text", "stream", "figures", "classes", "transcriptions"] = "text"
    """What that field holds: text; text that the route also sends in events as /v1/generate does; a
    list of figures; a list of objects with `classes`, which have a label and a probability each,
    and perhaps a `picture` of what was read; or a list of objects with a `text`, perhaps `words`
    with their times, and perhaps a `picture` whose `tokens` have the attention over it. A figure is
    an object whose `svg` is drawn and whose `text`, if it has one, can be copied. If it has
    `attention`, element `data-query="q"` of the drawing can be chosen, and shows its weights
    attention[q][k] on the elements `data-key="k"`."""
    live: bool = False
    """Whether it answers while one types."""
    rate: int = 0
    """Samples a second of a recording; 0 where none is made."""
    longest_seconds: float = 0.0
    """Of a recording."""
    most_pixels: int = 0
    """Of an image; 0 where none is sent."""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further fields of each request, with their values."""
