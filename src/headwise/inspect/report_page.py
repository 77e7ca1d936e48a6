"""A run's report as a self-contained page: score, samples, attention, curves, recipe."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from headwise import __version__
from headwise.config import AnyConfig, toml_value
from headwise.durations import duration
from headwise.inspect.attention import AttentionRecord
from headwise.inspect.attention_page import EXPLORER, EXPLORER_START, explorer_data
from headwise.inspect.curves import Curves
from headwise.inspect.curves_page import CHART_STYLE, chart_svg, explanation
from headwise.inspect.document import STYLE, render_document
from headwise.inspect.explorer_files import explorer_script, explorer_style
from headwise.paper import compare_with_paper
from headwise.tasks.report import Cell, Confusion, Contents, Figure
from headwise.tasks.tracing import data_uri

_STYLE = """
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin-top: 1rem; }
nav a, .card a { color: var(--accent); text-underline-offset: .2em; }
a:focus-visible, summary:focus-visible, pre:focus-visible, .scroll:focus-visible {
  outline: 3px solid var(--accent); outline-offset: 2px; border-radius: .2rem; }
.facts { display: grid; gap: .75rem; margin: 1.25rem 0 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr)); }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .75rem 1rem; min-width: 0; }
.facts dt { color: var(--dim); font-size: .85rem; }
.facts dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.3;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.facts small { display: block; font-size: .85rem; font-weight: 400; color: var(--dim); }
.card .facts { margin: .75rem 0; }
.card .facts div { background: none; }
.facts .first dd { font-size: 2rem; color: var(--accent); }
.note, .card > p { color: var(--dim); margin: .25rem 0 0; max-width: 52rem; }
.note { font-size: .9rem; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9em; }
.samples { list-style: none; margin: .75rem 0 0; padding: 0; }
.samples li { border-top: 1px solid var(--line); padding: .75rem 0; }
.samples dl { margin: 0; display: grid; gap: .5rem 1.5rem; }
.samples dt { color: var(--dim); font-size: .85rem; }
.samples dd { margin: 0; overflow-wrap: anywhere; }
.samples .ours dd { font-weight: 600; }
.charts { display: grid; gap: 1.5rem; margin-top: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.charts .note { margin: 0 0 .5rem; }
.explorer { margin-top: 1rem; }
.scroll { overflow-x: auto; margin-top: .75rem; }
.scroll table { border-collapse: collapse; width: 100%; font-size: .95rem; }
.scroll td, .scroll th { text-align: left; vertical-align: top; padding: .4rem .75rem .4rem 0;
  border-top: 1px solid var(--line); font-weight: 400; }
.scroll thead th { color: var(--dim); font-size: .85rem; border-top: 0; }
.scroll .confusion td, .scroll .confusion thead th { text-align: right;
  font-variant-numeric: tabular-nums; }
.scroll .confusion .right { font-weight: 600; }
.scroll th code, .scroll td code { white-space: nowrap; }
details { margin-top: 1rem; }
summary { cursor: pointer; color: var(--accent); width: fit-content; }
pre { margin: .5rem 0 0; padding: .75rem 1rem; border: 1px solid var(--line); border-radius: .45rem;
  background: var(--paper); overflow-x: auto; }
.sample { display: block; width: 100%; max-width: 9rem; max-height: 9rem; object-fit: fill;
  image-rendering: pixelated; border: 1px solid var(--line); border-radius: .3rem; }
.steps { margin: .75rem 0 0; padding: 0; list-style: none; display: grid; gap: 1rem;
  grid-template-columns: minmax(0, 1fr); }
.steps p { margin: 0; }
footer { margin-top: 1.5rem; color: var(--dim); font-size: .9rem; }
@media (min-width: 50rem) {
  .samples dl { grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr); }
  /* Side by side, the first says it for all; screen readers still hear it. */
  .samples li + li dt { position: absolute; width: 1px; height: 1px; overflow: hidden;
    clip-path: inset(50%); } }
.steps pre { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 50rem) { .departures thead { display: none; }
  .departures tr { display: block; padding: .5rem 0; border-top: 1px solid var(--line); }
  .departures td, .departures th { display: block; padding: 0; border: 0; }
  .departures td:nth-of-type(1)::before { content: "here "; color: var(--dim); }
  .departures td:nth-of-type(2)::before { content: "in the paper "; color: var(--dim); }
  .departures td:nth-of-type(3) { color: var(--dim); } }
@media (max-width: 40rem) { .facts { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .facts .first { grid-column: 1 / -1; } }
"""

_CODE = re.compile("`([^`]+)`")

_ENVIRONMENT = {
    "cpu": "Processor",
    "cores": "Cores",
    "threads": "Threads",
    "processes": "Processes",
    "device": "Device",
    "platform": "System",
    "python": "Python",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "headwise": "Headwise",
    "started": "Started",
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that the page shows; None, or empty, where unknown."""

    name: str
    """The run's."""
    config: AnyConfig
    weights: str
    """The checkpoint, or average of several, that was used."""
    parameters: int
    contents: Contents
    """What its task says about it."""
    records: Sequence[AttentionRecord]
    curves: Curves | None
    sessions: Sequence[Mapping[str, Any]]
    """What each session of training ran on."""


def render_report(report: Report) -> str:
    """Return the report as an HTML document."""
    sections = {
        "score": ("Score", _scores(report.contents)),
        "examples": ("Examples", _samples(report.contents)),
        "attention": ("Attention", _attention(report)),
        "curves": ("Curves", _curves(report)),
        "recipe": ("Recipe", _recipe(report.config)),
        "machine": ("Machine", _machine(report.sessions)),
        "next": ("How to go on", _commands(report.contents.commands)),
    }
    shown = {key: section for key, section in sections.items() if section[1]}
    links = "".join(f'<a href="#{key}">{title}</a>' for key, (title, _) in shown.items())
    cards = "\n".join(
        f'<section class="card" id="{key}">\n<h2>{title}</h2>\n{content}\n</section>'
        for key, (title, content) in shown.items()
    )
    body = f"""<header>
<h1>{escape(_title(report))}</h1>
<p class="lead">{escape(_lead(report))}</p>
{_facts(_key_figures(report))}
<nav aria-label="Sections">{links}</nav>
</header>
{cards}
<footer>Made by Headwise {escape(__version__)} of {escape(report.weights)}.</footer>"""
    has_explorer = bool(report.records)
    return render_document(
        title=f"{_title(report)}: {report.name}",
        body=body,
        style=STYLE + CHART_STYLE + explorer_style() + _STYLE,
        script=explorer_script() + EXPLORER_START if has_explorer else "",
        data=explorer_data(report.records, {}) if has_explorer else None,
    )


def _title(report: Report) -> str:
    return report.contents.title or report.name


def _lead(report: Report) -> str:
    """Describe the run in a sentence."""
    contents = report.contents
    kind = "Transformer" if report.config.model.kind == "transformer" else "recurrent model"
    parts = [f"A {kind} of {_millions(report.parameters)} parameters that {contents.does}"]
    if report.curves is not None and report.curves.runs[0].minutes is not None:
        parts.append(f"trained for {duration(60 * report.curves.runs[0].minutes)}")
    if contents.trained_on is not None:
        count, unit = contents.trained_on
        parts.append(f"on {count:,} {unit}")
    if len(parts) == 1:
        return f"{parts[0]}."
    return f"{parts[0]}, {' '.join(parts[1:])}."


def _key_figures(report: Report) -> list[Figure]:
    figures = [Figure(name="Parameters", value=_millions(report.parameters))]
    if report.curves is not None:
        run = report.curves.runs[0]
        if run.minutes is not None:
            updates = f"{run.step:,} updates"
            figures.append(Figure(name="Training", value=duration(60 * run.minutes), more=updates))
        if run.speed is not None:
            speed = f"{run.speed:,.0f}"
            figures.append(
                Figure(name="Speed in training", value=speed, more="target tokens a second")
            )
        if run.best_perplexity is not None:
            figures.append(
                Figure(
                    name="Validation perplexity",
                    value=f"{run.best_perplexity:.2f}",
                    more=f"step {run.best_step:,}",
                )
            )
    if report.contents.trained_on is not None:
        count, unit = report.contents.trained_on
        figures.append(Figure(name="Trained on", value=f"{count:,}", more=unit))
    return figures


def _facts(figures: Sequence[Figure], *, first: bool = False) -> str:
    items = []
    for place, figure in enumerate(figures):
        kind = ' class="first"' if first and place == 0 else ""
        small = f"<small>{escape(figure.more)}</small>" if figure.more else ""
        name, value = escape(figure.name), escape(figure.value)
        items.append(f"<div{kind}><dt>{name}</dt><dd>{value}{small}</dd></div>")
    return f'<dl class="facts">{"".join(items)}</dl>'


def _scores(contents: Contents) -> str:
    if not contents.about_scores and not contents.scores:
        return ""
    about = f"<p>{_prose(contents.about_scores)}</p>"
    notes = "\n".join(f'<p class="note">{_prose(note)}</p>' for note in contents.notes)
    figures = _facts(contents.scores, first=True) if contents.scores else ""
    confusion = "" if contents.confusion is None else _confusion(contents.confusion)
    return "\n".join(part for part in (about, figures, confusion, notes) if part)


def _confusion(confusion: Confusion) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in confusion.names)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(
            f'<td class="right">{count:,}</td>' if row == column else f"<td>{count:,}</td>"
            for column, count in enumerate(counts)
        )
        + "</tr>"
        for row, (name, counts) in enumerate(zip(confusion.names, confusion.counts, strict=True))
    )
    return f"""<p class="note">{escape(confusion.about)}</p>
<div class="scroll" tabindex="0" role="region" aria-label="Confusion matrix">
<table class="confusion">
<thead><tr><td></td>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def _prose(text: str) -> str:
    """Escape a text, and set what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _samples(contents: Contents) -> str:
    about = f"<p>{escape(contents.about_samples)}</p>" if contents.about_samples else ""
    if not contents.samples:
        return about
    items = "\n".join(
        f"<li><dl>{''.join(map(_cell, sample))}</dl></li>" for sample in contents.samples
    )
    return f'{about}\n<ol class="samples">\n{items}\n</ol>'


def _cell(cell: Cell) -> str:
    kind = ' class="ours"' if cell.is_output else ""
    text = "<br>".join(escape(line) for line in cell.text.split("\n"))
    if cell.png:
        text = f'<img class="sample" src="{data_uri(cell.png)}" alt="{escape(cell.text)}">'
    return (
        f"<div{kind}><dt>{escape(cell.label)}</dt>"
        f"<dd{_lang(cell.language)}>{text or '–'}</dd></div>"
    )


def _lang(code: str) -> str:
    return f' lang="{escape(code)}" dir="auto"' if code else ' dir="auto"'


def _attention(report: Report) -> str:
    if not report.records:
        return ""
    one, unit, units = "sentence", "word", "words"
    if (picture := report.records[0].picture) is not None:
        one = picture["kind"]
        unit, units = ("patch", "patches") if one == "image" else ("frame", "frames")
        if report.records[0].cross:
            unit, units = "token", "tokens"
    return f"""<p>How the model relates {units}: each {unit} looks at others, and the numbers say
how much. Choose a {one}, a head and a {unit} to see what it looks at.</p>
<div class="explorer">
{EXPLORER}
</div>"""


def _curves(report: Report) -> str:
    if report.curves is None:
        return ""
    charts = "\n".join(
        f'<div><h3>{escape(chart.title)}</h3><p class="note">{escape(explanation(chart))}</p>'
        f"{chart_svg(chart)}</div>"
        for chart in report.curves.charts
    )
    return f'<div class="charts run-0">\n{charts}\n</div>'


def _recipe(config: AnyConfig) -> str:
    experiment, departures = compare_with_paper(config)
    if departures:
        count = "1 setting" if len(departures) == 1 else f"{len(departures)} settings"
        about = f"{count} of the recipe depart from the paper, compared with {experiment.title}:"
    else:
        about = f"No departure from the paper: this is {experiment.title}."
    rows = "\n".join(
        f'<tr><th scope="row"><code>{escape(departure.key)}</code></th>'
        f"<td><code>{escape(toml_value(departure.value))}</code></td>"
        f"<td>{escape(departure.says)} ({escape(departure.section)})</td>"
        f"<td>{escape(departure.reason) or '–'}</td></tr>"
        for departure in departures
    )
    table = f"""<div class="scroll" tabindex="0" role="region" aria-label="Departures">
<table class="departures">
<thead><tr><th scope="col">Setting</th><th scope="col">here</th><th scope="col">in the paper</th>
<th scope="col">the usual reason</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""
    return f"""<p>{escape(about)}</p>
{table if departures else ""}
<details><summary>The whole recipe</summary>
<pre tabindex="0">{escape(config.to_toml())}</pre></details>"""


def _machine(sessions: Sequence[Mapping[str, Any]]) -> str:
    if not sessions:
        return ""
    last = sessions[-1]
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(last[key]))}</td></tr>'
        for key, name in _ENVIRONMENT.items()
        if last.get(key) is not None
    )
    about = (
        ""
        if len(sessions) == 1
        else f"<p>Trained in {len(sessions)} sessions; this is the last.</p>"
    )
    return f"""{about}
<div class="scroll" tabindex="0" role="region" aria-label="Machine"><table><tbody>
{rows}
</tbody></table></div>"""


def _commands(commands: Sequence[tuple[str, str]]) -> str:
    items = "\n".join(
        f'<li><p>{escape(why)}</p><pre tabindex="0"><code>{escape(command)}</code></pre></li>'
        for why, command in commands
    )
    return f'<ol class="steps">\n{items}\n</ol>' if commands else ""


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f} million" if count >= 100_000 else f"{count:,}"
