"""Explanations as a self-contained page: no script, light and dark."""

from html import escape
from pathlib import Path

from headwise.errors import RequestError
from headwise.files import write_output
from headwise.inspect.document import STYLE, render_document
from headwise.inspect.explain import Step, Table, number

_TITLE = "One head of attention, step by step"

_STYLE = """
main { max-width: 60rem; }
h1 { margin-bottom: .25rem; }
h2 { font-size: 1.15rem; margin: 0; }
.lead, .reason { color: var(--dim); margin: .25rem 0 0; }
ol { list-style: none; margin: 1.5rem 0 0; padding: 0; }
li { margin-top: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1rem 1.25rem; }
.formula, .worked, td, th, caption { font-family: ui-monospace, "DejaVu Sans Mono", monospace;
  font-variant-numeric: tabular-nums; }
.formula { color: var(--accent); margin: .25rem 0 0; }
.worked { color: var(--works); margin: .75rem 0 0; overflow-wrap: anywhere; font-size: .9rem; }
.tables { display: flex; flex-wrap: wrap; gap: 1.5rem; margin-top: .75rem; }
.scroll { overflow-x: auto; max-width: 100%; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; }
caption { text-align: left; font-weight: 600; padding-bottom: .25rem; }
td, th { border: 1px solid var(--line); padding: .25rem .6rem; text-align: right;
  font-size: .9rem; }
th { color: var(--dim); font-weight: 500; }
"""

_SHADES = 50
"""How many shades the weights of a table have; a weight of 1 has the darkest."""

_SHADE_STYLE = "".join(
    f".shade-{shade} {{ background: rgba(var(--heat), {0.4 * shade / _SHADES:.3f}); }}\n"
    for shade in range(_SHADES + 1)
)


def write_page(steps: list[Step], path: Path) -> None:
    """Write the steps to a file as a page; after an error there is no half-written file."""
    try:
        write_output(path, render_page(steps).encode())
    except OSError as error:
        raise RequestError(f"{path}: cannot write the page: {error.strerror}") from error


def render_page(steps: list[Step]) -> str:
    """Return the steps as an HTML document."""
    items = "\n".join(_step(position, step) for position, step in enumerate(steps, 1))
    body = f"""<h1>{_TITLE}</h1>
<p class="lead">Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V
 · “Attention Is All You Need”, §3.2.1</p>
<ol>
{items}
</ol>"""
    return render_document(title=_TITLE, body=body, style=STYLE + _STYLE + _SHADE_STYLE)


def _step(position: int, step: Step) -> str:
    tables = "\n".join(
        f'<div class="tables">\n{"".join(map(_table, row))}</div>' for row in step.tables
    )
    worked = f'<p class="worked">{escape(step.worked)}</p>' if step.worked else ""
    return f"""<li>
<h2>{position}. {escape(step.title)}</h2>
<p class="formula">{escape(step.formula)}</p>
<p class="reason">{escape(step.reason)}</p>
{tables}
{worked}
</li>"""


def _table(table: Table) -> str:
    head = ""
    if table.column_labels is not None:
        cells = "".join(f'<th scope="col">{escape(label)}</th>' for label in table.column_labels)
        head = f"<thead><tr><td></td>{cells}</tr></thead>"
    rows = "\n".join(
        f'<tr><th scope="row">{escape(label)}</th>'
        + "".join(_cell(value, table.is_weights) for value in row)
        + "</tr>"
        for label, row in zip(table.row_labels, table.values, strict=True)
    )
    caption = f"<caption>{escape(table.name)}</caption>"
    body = f"<tbody>\n{rows}\n</tbody>"
    # A wide table scrolls in its own box, which must have keyboard focus.
    box = f'class="scroll" tabindex="0" role="region" aria-label="{escape(table.name)}"'
    return f"<div {box}><table>{caption}{head}{body}</table></div>\n"


def _cell(value: float, is_weight: bool) -> str:
    attributes = f' class="shade-{round(value * _SHADES)}"' if is_weight else ""
    return f"<td{attributes}>{number(value)}</td>"
