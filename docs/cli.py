"""Generate docs/cli.md from the commands: `make docs`."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from headwise.cli import app

WIDTH = 100
PAGE = Path(__file__).with_suffix(".md")


def page(root: click.Group = app, name: str = "headwise") -> str:
    """Return the whole page; it depends only on the commands."""
    context = click.Context(root, info_name=name)
    parts = [
        "# Commands",
        "`make docs` writes this page from the commands themselves: change those, not this.",
        *_prose(root.help or ""),
        *_epilog(root.epilog or ""),
        "\n".join(_contents(root, context)),
        *_sections(root, context),
    ]
    return "\n\n".join(parts) + "\n"


def _contents(group: click.Group, context: click.Context) -> Iterator[str]:
    yield "| command | what it does |"
    yield "|---|---|"
    for verb in group.list_commands(context):
        command = group.commands[verb]
        title = f"{context.command_path} {verb}"
        anchor = title.replace(" ", "-")
        yield f"| [`{title}`](#{anchor}) | {_cell(command.get_short_help_str(limit=WIDTH))} |"


def _sections(group: click.Group, context: click.Context) -> Iterator[str]:
    for verb in group.list_commands(context):
        command = group.commands[verb]
        below = click.Context(command, info_name=verb, parent=context)
        yield f"## {below.command_path}"
        usage = [below.command_path, *command.collect_usage_pieces(below)]
        yield f"```text\n{' '.join(usage)}\n```"
        yield from _prose(command.help or "")
        if rows := list(_options(command, below)):
            yield "\n".join(["| option | what it does |", "|---|---|", *rows])
        yield from _epilog(command.epilog or "")
        if isinstance(command, click.Group):
            yield from _sections(command, below)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        # The help text describes arguments; every command has --help.
        if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
            continue
        if (record := parameter.get_help_record(context)) is not None:
            name = record[0].removesuffix(" RANGE")  # The help text has the range.
            yield f"| `{_cell(name)}` | {_cell(record[1])} |"


def _epilog(text: str) -> Iterator[str]:
    """Keep examples verbatim and wrap the rest."""
    for paragraph in text.strip("\n").split("\n\n"):
        # Click does not wrap a paragraph that starts with this mark.
        if not paragraph.startswith("\b\n"):
            yield from _prose(paragraph)
            continue
        title, *lines = paragraph.removeprefix("\b\n").splitlines()
        # A title may span lines; the example below it is indented.
        while lines and not lines[0].startswith(" "):
            title += f" {lines.pop(0)}"
        yield from _prose(title)
        if lines:
            block = textwrap.dedent("\n".join(lines))
            yield f"```text\n{block}\n```"


def _prose(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        if paragraph.strip():
            yield textwrap.fill(" ".join(paragraph.split()), WIDTH, break_on_hyphens=False)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
