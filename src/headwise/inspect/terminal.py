"""Explanations on a terminal, or as plain text where there is none."""

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from headwise.inspect.explain import Step, Table, number


def print_steps(steps: list[Step], console: Console) -> None:
    """Print each step with its tables side by side as far as the width allows."""
    for position, step in enumerate(steps, 1):
        console.print(Text(f"{position}. {step.title}", style="bold"))
        console.print(Text(f"   {step.formula}", style="cyan"))
        console.print(Padding(Text(step.reason, style="dim"), (0, 0, 0, 3), expand=False))
        shown: RenderableType = Columns([_table(table) for table in step.tables], padding=(0, 3))
        if step.worked:
            shown = Group(shown, Text(step.worked, style="green"))
        console.print(Padding(shown, (0, 0, 1, 3), expand=False))


def _table(table: Table) -> RichTable:
    labels = table.column_labels
    drawn = RichTable(title=table.name, box=box.SIMPLE_HEAD, show_header=labels is not None)
    drawn.add_column("", style="dim")
    for column in range(len(table.values[0])):
        drawn.add_column("" if labels is None else Text(labels[column]), justify="right")
    for label, row in zip(table.row_labels, table.values, strict=True):
        cells = (_cell(value, table.is_weights) for value in row)
        drawn.add_row(Text(label), *cells)
    return drawn


def _cell(value: float, is_weight: bool) -> Text:
    style = "bold" if is_weight and value >= 0.5 else ""
    return Text(number(value), style=style)
