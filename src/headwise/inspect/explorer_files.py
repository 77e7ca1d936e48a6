"""The attention explorer's script and style, to be inlined in a page or served beside one."""

from importlib.resources import files

_SCRIPTS = ("reading.js", "views.js", "explorer.js")
"""Each needs the ones before it."""


def explorer_script() -> str:
    """Return the script that defines `HeadwiseExplorer.mount(element, records, options)`."""
    return "".join(_read(name) for name in _SCRIPTS)


def explorer_style() -> str:
    """Return the style sheet that belongs to it."""
    return _read("explorer.css")


def _read(name: str) -> str:
    return files("headwise.inspect").joinpath("explorer", name).read_text("utf-8")
