"""The comparison with recurrent models for people: as rows of text, and as a page."""

import math
from collections.abc import Sequence

from headwise.inspect.table_page import Grid, Plot, render_table_page
from headwise.workflows.reproduce.baseline import Baseline, Compared
from headwise.workflows.reproduce.trainings import file_names

_LEAD = (
    "The Transformer beside the recurrent encoder-decoders that it replaced, with additive "
    "attention (Bahdanau et al., 2015) and without attention (Sutskever et al., 2014): as many "
    "parameters, the same text, the same minutes."
)

_FEWEST = 10
"""Sentences of a length that a chart shows: BLEU of fewer is chance."""


def baseline_grids(found: Baseline) -> list[Grid]:
    """Return the models side by side, then their quality by sentence length."""
    return [
        Grid(
            title="Equal parameters, equal minutes",
            columns=(
                "model",
                "parameters",
                "d_model",
                "minutes",
                "target tokens",
                "tokens/s",
                "validation perplexity",
                "test perplexity",
                "test BLEU",
                "longer: perplexity",
                "longer: BLEU",
            ),
            rows=tuple(_row(model, found) for model in found.models),
            notes=_notes(found),
        ),
        Grid(
            title="BLEU by source tokens",
            columns=("source tokens", "sentences", *(model.name for model in found.models)),
            rows=tuple(_lengths(found)),
            notes=(f"The longest source in training has {found.text.longest} tokens.",),
        ),
    ]


def baseline_page(found: Baseline) -> str:
    """Return the page."""
    by_length = {
        model.name: [
            ((group["from"] + group["to"]) / 2, _mean(_group_bleus(model, number)))
            for number, group in enumerate(model.cells[0]["test"]["by_length"])
            if group["sentences"] >= _FEWEST
        ]
        for model in found.models
    }
    plots = [
        Plot(
            name="perplexity",
            title="Perplexity over time",
            unit="on the validation text",
            by="minutes",
            lines={model.name: model.curve("perplexity") for model in found.models},
        ),
        Plot(
            name="bleu",
            title="BLEU over time",
            unit="of greedy translations of some of the validation text",
            by="minutes",
            lines={model.name: model.curve("bleu") for model in found.models},
            is_log=False,
        ),
        Plot(
            name="length",
            title="BLEU by length",
            unit=f"on test sentences; training had up to {found.text.longest} source tokens",
            by="source tokens",
            lines=by_length,
            is_log=False,
        ),
    ]
    return render_table_page(
        title="The Transformer and what it replaced",
        lead=_LEAD,
        grids=baseline_grids(found),
        plots=[plot for plot in plots if any(plot.lines.values())],
        conditions={
            **found.conditions,
            "text": file_names(found.conditions["text"]),
            "validation text": file_names(found.conditions["validation text"] or ())
            or "held out of the text",
        },
    )


def _row(model: Compared, found: Baseline) -> tuple[str, ...]:
    spread = found.bleu_spread
    width = "" if spread is None else f" ± {spread.half_width(len(model.cells)):.1f}"
    long = model.test("long", "perplexity")
    return (
        model.name,
        f"{model.parameters:,} ({_percent(model.parameters, found.models[0].parameters)})",
        str(model.d_model),
        f"{model.mean('minutes'):.1f}",
        f"{model.mean('tokens'):,.0f}",
        f"{model.mean('tokens_per_second'):,.0f}",
        f"{model.mean('perplexity'):.2f}",
        f"{_geometric(model.test('usual', 'perplexity')):.2f}",
        f"{_mean(model.test('usual', 'bleu')):.1f}{width}",
        f"{_geometric(long):.2f}" if long else "",
        f"{_mean(model.test('long', 'bleu')):.1f}" if long else "",
    )


def _percent(value: int, of: int) -> str:
    return f"{100 * (value / of - 1):+.1f} %"


def _notes(found: Baseline) -> tuple[str, ...]:
    text, seeds = found.text, len(found.models[0].cells)
    if text.long_sentences:
        longer = (
            f"Longer: {text.long_sentences:,} sentences of more than {text.longest} source tokens, "
            f"which no sentence in training has: up to {text.long_longest}, half of them up to "
            f"{text.long_median}. They are translated whole."
        )
    else:
        longer = (
            f"The text is too small, with {text.train_pairs:,} pairs to train on, to hold out "
            "sentences that are longer than any in training: that test is left out."
        )
    notes = [
        f"{text.train_pairs:,} pairs to train on, {text.test_sentences:,} sentences to test on, "
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}. Minutes include validation; tokens a "
        "second do not.",
        longer,
        _finding(found),
        "Bahdanau: one GRU layer; Sutskever: two LSTM layers, where the original has four. Both "
        "clip their gradients, the Transformer does not.",
        *found.sessions,
    ]
    if found.bleu_spread is not None:
        notes.append(
            "±: 95 % intervals from the variance between seeds, pooled over the models "
            f"({found.bleu_spread.freedom} degrees of freedom)."
        )
    if found.conditions["jobs"] > 1:
        notes.append(
            f"Trained {found.conditions['jobs']} at a time, one thread each: speeds are those of a "
            "shared machine."
        )
    return tuple(notes)


def _finding(found: Baseline) -> str:
    """Say whether the Transformer is ahead, as the paper claims (Table 2)."""
    first, *others = ((m.name, _mean(m.test("usual", "bleu")), len(m.cells)) for m in found.models)
    ahead = [name for name, bleu, _ in others if bleu > first[1]]
    if ahead:
        verdict = f"Disagrees with the paper: {' and '.join(ahead)} ahead of the Transformer"
    else:
        verdict = (
            "As in the paper, the Transformer is ahead of both, with a learning rate and batches "
            "that were chosen for it"
        )
    spread = found.bleu_spread
    if spread is None:
        return f"{verdict}, by one seed and without an interval."
    width = spread.half_width(first[2], first[2])
    if any(abs(bleu - first[1]) <= width for _, bleu, _ in others):
        return f"{verdict}, but not all differences are beyond their interval of ± {width:.1f}."
    return f"{verdict}, beyond the interval of a difference, ± {width:.1f}."


def _lengths(found: Baseline) -> list[tuple[str, ...]]:
    groups = found.models[0].cells[0]["test"]["by_length"]
    return [
        (
            f"{group['from']}-{group['to']}",
            f"{group['sentences']:,}",
            *(f"{_mean(_group_bleus(model, number)):.1f}" for model in found.models),
        )
        for number, group in enumerate(groups)
    ]


def _group_bleus(model: Compared, number: int) -> list[float]:
    return [cell["test"]["by_length"][number]["bleu"] for cell in model.cells]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _geometric(values: Sequence[float]) -> float:
    return math.exp(_mean([math.log(value) for value in values]))
