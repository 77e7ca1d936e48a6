"""Table 2 for people: as rows of text, and as a page."""

from headwise.inspect.table_page import Grid, Plot, render_table_page
from headwise.workflows.reproduce.table2 import PAPER, Cost, Table2

_LEAD = (
    "What trainings cost in floating-point operations. The paper multiplies the time of a training "
    "by its devices and by what each sustains; the operations of the model itself are fewer."
)


def table2_grids(table: Table2) -> list[Grid]:
    """Return our costs, then the paper's table."""
    return [
        Grid(
            title="Costs of recipes and runs",
            columns=(
                "training",
                "parameters",
                "target tokens",
                "FLOPs by formula",
                "counted / formula",
                "FLOPs as the paper counts",
                "formula / paper's",
                "perplexity",
                "BLEU",
            ),
            rows=tuple(_row(cost) for cost in table.costs),
            notes=(
                "By formula: the products of the model, forward and backward, for pairs of a usual "
                "length. Counted: one step by torch's counter.",
                *(
                    f"{cost.name}, as the paper counts: {cost.hardware}."
                    for cost in table.costs
                    if cost.hardware
                ),
                *_disagreements(table),
            ),
        ),
        Grid(
            title="The paper's Table 2 (newstest2014)",
            columns=("model", "BLEU en-de", "BLEU en-fr", "FLOPs en-de", "FLOPs en-fr"),
            rows=tuple(
                (
                    row.model,
                    *("" if score is None else f"{score:g}" for score in row.bleu),
                    *(_flops(flops) for flops in row.flops),
                )
                for row in PAPER
            ),
        ),
    ]


def table2_page(table: Table2) -> str:
    """Return the page."""
    costs = {
        row.model: [(row.flops[0], row.bleu[0])]
        for row in PAPER
        if row.flops[0] is not None and row.bleu[0] is not None
    }
    plot = Plot(
        name="cost",
        title="The paper's figures: BLEU by cost",
        unit="BLEU on newstest2014 en-de, as the paper counts operations",
        by="training FLOPs",
        lines={name: [(float(x), float(y)) for x, y in points] for name, points in costs.items()},
    )
    return render_table_page(
        title="Table 2: what a training costs",
        lead=_LEAD,
        grids=table2_grids(table),
        plots=[plot],
        conditions=table.conditions,
    )


def _row(cost: Cost) -> tuple[str, ...]:
    share = ""
    if cost.flops is not None and cost.hardware_flops:
        share = f"{cost.flops / cost.hardware_flops:.2f}"
    return (
        cost.name,
        f"{cost.parameters / 1e6:.1f} M",
        "by the clock" if cost.target_tokens is None else f"{cost.target_tokens:.2g}",
        _flops(cost.flops),
        f"{cost.counted_ratio:.3f}",
        _flops(cost.hardware_flops),
        share,
        "" if cost.perplexity is None else f"{cost.perplexity:.2f}",
        "" if cost.bleu is None else f"{cost.bleu:.1f}",
    )


def _flops(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def _disagreements(table: Table2) -> list[str]:
    found = []
    for cost in table.costs:
        if cost.name in ("base", "big") and cost.flops and cost.hardware_flops:
            share = cost.flops / cost.hardware_flops
            found.append(
                f"Disagrees: the model's own operations of {cost.name} are {share:.0%} of the "
                "paper's figure, which counts what the GPUs could have done in the time."
            )
    return found
