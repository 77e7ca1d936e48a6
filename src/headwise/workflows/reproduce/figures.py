"""Figures 3 to 5: heads of a trained model that do what the paper's do."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, get_args

from headwise.errors import RequestError
from headwise.files import make_directories, replace_file
from headwise.inspect.attention import MOST_TOKENS, AttentionRecord, readable, record_of
from headwise.inspect.attention_figure import render_attention_figure
from headwise.inspect.attention_page import EXPLORER, EXPLORER_START, Choice, explorer_data
from headwise.inspect.document import STYLE, render_document
from headwise.inspect.explorer_files import explorer_script, explorer_style
from headwise.inspect.table_page import GRID_STYLE, Grid, grid_html
from headwise.tasks.translation.translator import Translator
from headwise.training.task import Progress
from headwise.workflows.reproduce.heads import (
    FAR,
    PRONOUNS,
    Figure,
    Head,
    Sentence,
    rank_heads,
)

_SHOWN = 5
"""Heads of each kind in the table."""

_MEASURES: dict[Figure, tuple[str, str]] = {
    "long distance": (
        "Figure 3",
        f"attention of a token to a word at least {FAR} tokens away, where it attends to nothing "
        "more, on average over the tokens that have such a word",
    ),
    "reference": (
        "Figure 4",
        "attention of pronouns to the name before them that they attend to most; names are words "
        "that the text has capitalised inside sentences and never in small letters",
    ),
    "structure": (
        "Figure 5",
        "attention of a token to the one at a fixed distance, the same for every token, in "
        "sentences of at least 8 tokens",
    ),
}


@dataclass(frozen=True, kw_only=True)
class FoundFigure:
    """The heads that do what a figure shows, and the sentence that shows the first best."""

    figure: Figure
    paper: str
    measure: str
    heads: tuple[Head, ...]
    record: AttentionRecord | None
    missing: str = ""
    """Why there is none."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was found, and in which sentences."""

    weights: str
    sentences: int
    skipped: int
    """Lines that cannot be traced: empty ones, and those of more tokens than a page can show."""
    figures: tuple[FoundFigure, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the weights as JSON values."""
        return {
            "weights": self.weights,
            "sentences": self.sentences,
            "skipped": self.skipped,
            "figures": [
                {
                    "figure": found.figure,
                    "paper": found.paper,
                    "measure": found.measure,
                    "missing": found.missing,
                    "sentence": "" if found.record is None else found.record.source,
                    "heads": [asdict(head) for head in found.heads],
                }
                for found in self.figures
            ],
        }


def find_figures(
    translator: Translator,
    lines: Sequence[str],
    *,
    language: str,
    on_progress: Progress = lambda *_: None,
) -> Figures:
    """Trace sentences, and rank the encoder's heads by each figure's measure."""
    if translator.config.model.kind != "transformer":
        raise RequestError("the figures are of a Transformer: this model has no self-attention")
    sentences, skipped = [], 0
    for number, line in enumerate(lines):
        on_progress("tracing", number + 1, len(lines))
        try:
            pair = translator.trace(line, most_tokens=MOST_TOKENS)
        except RequestError:  # Too long, or empty.
            skipped += 1
            continue
        weights = tuple(layer[0] for layer in pair.trace.encoder.self_attention)
        tokens = tuple(readable(pair.source_tokens))
        if len(tokens) + 1 == weights[0].shape[1]:
            sentences.append(Sentence(text=line, tokens=tokens, weights=weights))
        else:
            skipped += 1
    if not sentences:
        raise RequestError(f"none of the {skipped:,} sentences can be traced")
    pronouns = PRONOUNS.get(language, frozenset())
    found = []
    for figure in get_args(Figure):
        ranked = rank_heads(figure, sentences, pronouns)
        record, missing = None, ""
        if ranked:
            text = sentences[ranked[0].best_sentence].text
            record = record_of(translator.trace(text, most_tokens=MOST_TOKENS))
        elif figure == "reference" and not pronouns:
            missing = f"there is no list of pronouns for the language {language!r}"
        else:
            missing = "no sentence of the text has a case of it"
        paper, measure = _MEASURES[figure]
        found.append(
            FoundFigure(
                figure=figure,
                paper=paper,
                measure=measure,
                heads=tuple(ranked[:_SHOWN]),
                record=record,
                missing=missing,
            )
        )
    return Figures(
        weights=translator.name,
        sentences=len(sentences),
        skipped=skipped,
        figures=tuple(found),
    )


def write_figures(figures: Figures, out: Path, *, kinds: Sequence[str] = ()) -> list[Path]:
    """Write figures.html and figures.json, and each figure as files of the kinds given."""
    make_directories(out)
    written = [out / "figures.html", out / "figures.json"]
    replace_file(written[0], figures_page(figures).encode("utf-8", "backslashreplace"))
    replace_file(written[1], (json.dumps(figures.to_dict(), indent=1) + "\n").encode())
    for found in figures.figures:
        if found.record is None:
            continue
        for kind in kinds:
            head = found.heads[0]
            path = out / f"{found.paper.lower().replace(' ', '')}.{kind}"
            content = render_attention_figure(
                found.record, kind, kind="encoder", layer=head.layer, heads=[head.head]
            )
            replace_file(path, content)
            written.append(path)
    return written


def figures_grids(figures: Figures) -> list[Grid]:
    """Return a table for each figure."""
    return [
        Grid(
            title=f"{found.paper}: {found.figure}",
            columns=("head", "value", "cases", "at distance"),
            rows=tuple(
                (
                    f"layer {head.layer + 1}, head {head.head + 1}",
                    f"{head.value:.3f}",
                    f"{head.cases:,}",
                    "" if head.offset is None else f"{head.offset:+d}",
                )
                for head in found.heads
            ),
            notes=(
                f"Measure: {found.measure}.",
                f"Not found: {found.missing}." if found.missing else _example(found),
            ),
        )
        for found in figures.figures
    ]


def figures_page(figures: Figures) -> str:
    """Return a page with the tables, and the explorer at the first head of the first figure."""
    shown = [found for found in figures.figures if found.record is not None]
    choice: Choice = {}
    if shown:
        head = shown[0].heads[0]
        choice = {"kind": "encoder", "layer": head.layer, "head": head.head}
    body = f"""<h1>Heads like those of Figures 3 to 5</h1>
<p class="lead">Of {figures.sentences:,} sentences, the heads of the encoder that do most of what
the paper's figures show. The weights are those of {escape(figures.weights)}.</p>
{"".join(grid_html(grid) for grid in figures_grids(figures))}
<div class="card">
{EXPLORER}
</div>"""
    records = [found.record for found in shown if found.record is not None]
    return render_document(
        title="Heads like those of Figures 3 to 5",
        body=body,
        style=STYLE + GRID_STYLE + explorer_style(),
        script=explorer_script() + EXPLORER_START,
        data=explorer_data(records, choice),
    )


def _example(found: FoundFigure) -> str:
    assert found.record is not None
    head = found.heads[0]
    name = f"Layer {head.layer + 1}, head {head.head + 1}"
    return f"{name} does it most in: {found.record.source.strip()}"
