"""A task on the server's web page."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A form with one text box, and the answer to it."""

    title: str
    label: str
    """What to write into the text box."""
    button: str
    field: str
    """The field of the request that takes the text."""
    result: str
    """The field of the answer that is shown."""
