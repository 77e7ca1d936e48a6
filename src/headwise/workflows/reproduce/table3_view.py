"""Table 3 for people: as rows of text, and as a page."""

import math

from headwise.inspect.table_page import Grid, Plot, render_table_page
from headwise.workflows.reproduce.pooled import Spread
from headwise.workflows.reproduce.table3 import Row, Table3, scaled
from headwise.workflows.reproduce.table3_findings import (
    Judgement,
    difference,
    difference_width,
    judge,
)
from headwise.workflows.reproduce.trainings import file_names

_LEAD = (
    "The rows of the paper's Table 3 with all widths and the vocabulary divided by one factor, "
    "each trained on equally many target tokens; beside them what the paper prints."
)


def table3_grids(table: Table3) -> list[Grid]:
    """Return the table, then what it says of the paper's findings."""
    return [
        Grid(
            title="Table 3: variations on the Transformer",
            columns=(
                "row",
                "parameters",
                "the paper's",
                "perplexity",
                "to base",
                "BLEU",
                "to base",
                "paper's perplexity",
                "to base",
                "paper's BLEU",
                "to base",
            ),
            rows=tuple(_cells(row, table) for row in table.rows),
            notes=_notes(table),
        ),
        Grid(
            title="The paper's findings",
            columns=("finding (§5.4, §6.2)", "paper", "here", "verdict"),
            rows=tuple(_finding(judgement) for judgement in judge(table)),
            notes=(
                "Differences to base, in perplexity where nothing else is said. Conditions differ: "
                f"models {table.conditions['factor'] ** 2:,} times smaller, "
                f"{table.train_pairs:,} pairs of text instead of 4.5 million, "
                f"{table.target_tokens:,} target tokens instead of about 2.5 billion, "
                f"{_training_of(table)}, and a big model that is trained no longer than the "
                "others, not three times as long.",
            ),
        ),
    ]


def table3_page(table: Table3) -> str:
    """Return the page."""
    base, paper = table.base, table.base.paper
    assert paper.perplexity is not None
    relative = {
        group: sorted(
            (row.paper.perplexity / paper.perplexity, row.perplexity / base.perplexity)
            for row in rows
            if row.paper.perplexity is not None
        )
        for group, rows in _groups(table).items()
    }
    sizes = {
        group: sorted((row.parameters / 1e6, row.perplexity) for row in rows)
        for group, rows in _groups(table).items()
    }
    conditions = {
        key: value
        for key, value in table.conditions.items()
        if key not in ("text", "validation text")
    }
    return render_table_page(
        title="Table 3: variations on the Transformer",
        lead=_LEAD,
        grids=table3_grids(table),
        plots=[
            Plot(
                name="relative",
                title="Here against the paper",
                unit="perplexity divided by that of base; rows that agree are on the diagonal",
                by="the paper's perplexity / its base",
                lines=relative,
                is_log=False,
            ),
            Plot(
                name="size",
                title="Perplexity by size",
                unit="perplexity on the validation text",
                by="million parameters",
                lines=sizes,
                is_log=False,
            ),
        ],
        conditions={
            **conditions,
            "text": file_names(table.conditions["text"]),
            "validation text": file_names(table.conditions["validation text"] or ())
            or "held out of the text",
            "target tokens": f"{table.target_tokens:,}",
        },
    )


def _groups(table: Table3) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in table.rows:
        name = f"({row.group})" if len(row.group) == 1 else row.group
        found.setdefault(name, []).append(row)
    return found


def _cells(row: Row, table: Table3) -> tuple[str, ...]:
    base, is_base = table.base, row is table.base
    own = _with_width(
        f"{row.perplexity:.2f}",
        None
        if table.log_spread is None
        else row.perplexity * math.expm1(table.log_spread.half_width(len(row.perplexities))),
        2,
    )
    bleu_width = _half_width(table.bleu_spread, len(row.bleus))
    bleu_to_base = _half_width(table.bleu_paired, len(row.bleus), len(base.bleus))
    to_base = difference_width(row, base, table.log_paired)
    paper, paper_base = row.paper, base.paper
    assert paper.perplexity is not None
    assert paper.bleu is not None
    assert paper_base.perplexity is not None
    assert paper_base.bleu is not None
    return (
        row.title,
        f"{row.parameters / 1e6:.2f} M",
        f"{paper.parameters} M" if paper.parameters else "",
        own,
        "" if is_base else _with_width(f"{difference(row, base):+.2f}", to_base, 2),
        _with_width(f"{row.bleu:.1f}", bleu_width, 1),
        "" if is_base else _with_width(f"{row.bleu - base.bleu:+.1f}", bleu_to_base, 1),
        f"{paper.perplexity:.2f}",
        "" if is_base else f"{paper.perplexity - paper_base.perplexity:+.2f}",
        f"{paper.bleu:.1f}",
        "" if is_base else f"{paper.bleu - paper_base.bleu:+.1f}",
    )


def _half_width(spread: Spread | None, *counts: int) -> float | None:
    return None if spread is None else spread.half_width(*counts)


def _training_of(table: Table3) -> str:
    """Say how rows are trained other than in the paper."""
    config = scaled("table3-base", table.conditions["factor"], table.conditions["settings"])
    model, train = config.model, config.train
    parts = [f"batches of {train.batch_tokens * train.accumulate:,} tokens instead of 25,000"]
    if model.norm_order == "pre":
        parts.append("pre-norm")
    if train.clip_norm:
        parts.append("clipped gradients")
    if train.schedule != "paper":
        parts.append(
            f"a rate that rises for a tenth of the steps to {train.peak_rate:g} (for other widths "
            f"times the paper's d_model^-0.5), then a {train.schedule} decay"
        )
    return ", ".join(parts)


def _with_width(value: str, width: float | None, decimals: int) -> str:
    return value if width is None else f"{value} ± {width:.{decimals}f}"


def _notes(table: Table3) -> tuple[str, ...]:
    seeds = len(table.base.perplexities)
    found = [
        f"Each row: {table.target_tokens:,} target tokens, {table.epochs:.1f} passes over "
        f"{table.train_pairs:,} pairs, {seeds} {'seed' if seeds == 1 else 'seeds'}; the last "
        "checkpoint on the validation text, as in the paper without averaging. BLEU is sacreBLEU "
        "with a beam of 4; the paper's is tokenised, on newstest2013."
    ]
    if table.log_spread is None:
        found.append("No intervals: they need at least two seeds, and finite perplexities.")
    else:
        found.append(
            "±: 95 % intervals from the variance between seeds, pooled over all rows "
            f"({table.log_spread.freedom} degrees of freedom). Those of differences to base leave "
            "out what a seed does to all rows alike. Each finding is judged by itself, at 95 %."
        )
    found += table.sessions
    if overfitted := [row.title for row in table.rows if row.overfits]:
        found.append(
            f"Overfitted, with a lower perplexity before the end: {', '.join(overfitted)}."
        )
    return tuple(found)


def _finding(judgement: Judgement) -> tuple[str, ...]:
    decimals, unit = (1, " BLEU") if judgement.finding.by_bleu else (2, "")
    here = _with_width(f"{judgement.here:+.{decimals}f}", judgement.half_width, decimals)
    return (
        judgement.finding.says,
        f"{judgement.paper:+.{decimals}f}{unit}",
        f"{here}{unit}",
        judgement.verdict,
    )
