"""Table 3: its rows at any scale, its intervals, and what it says of the paper's findings."""

import math

import pytest

from headwise.config import Vocab
from headwise.errors import ConfigError
from headwise.paper import EXPERIMENTS
from headwise.recipes import load_recipe
from headwise.training.schedule import learning_rate
from headwise.workflows.reproduce.pooled import Spread, pool, pool_paired, student
from headwise.workflows.reproduce.table3 import FACTORS, Row, Table3, check_overrides, scaled
from headwise.workflows.reproduce.table3_findings import FINDINGS, judge

RECIPES = {each.recipe: each for each in EXPERIMENTS if each.recipe.startswith("table3-")}


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_one_factor_keeps_the_ratios_of_the_table(recipe: str, factor: int) -> None:
    full, small = load_recipe(recipe), scaled(recipe, factor)
    for size in ("d_model", "d_ff", "d_k", "d_v"):
        assert factor * getattr(small.model, size) == getattr(full.model, size)
    assert factor * small.data.vocab_size == full.data.vocab_size
    for same in ("num_layers", "num_heads", "dropout", "positions"):
        assert getattr(small.model, same) == getattr(full.model, same)
    assert small.train.label_smoothing == full.train.label_smoothing
    counts = [c.model.count_parameters(Vocab.shared(c.data.vocab_size)) for c in (full, small)]
    if factor == 4 and full.model.positions == "sinusoidal":
        assert counts[0] / counts[1] == pytest.approx(16, rel=0.03)


def test_the_variance_of_seeds_is_pooled() -> None:
    spread = pool([(1.0, 3.0), (10.0, 12.0), (7.0,)])
    assert spread == Spread(deviation=math.sqrt(2), freedom=2)
    assert spread.half_width(2) == pytest.approx(4.303)
    assert spread.half_width(2, 2) == pytest.approx(4.303 * math.sqrt(2))
    assert pool([(1.0,), (2.0,)]) is None
    assert student(60) == pytest.approx(2.000, abs=1e-3)


def row(name: str, perplexity: float, bleu: float = 20.0, seeds: int = 2) -> Row:
    return Row(
        recipe=f"table3-{name}",
        group=name[0].upper(),
        title=name,
        parameters=1,
        perplexities=(perplexity,) * seeds,
        bleus=(bleu,) * seeds,
        minutes=(1.0,) * seeds,
        overfits=False,
        paper=RECIPES[f"table3-{name}"],
    )


def table(*rows: Row, spread: float | None) -> Table3:
    found = None if spread is None else Spread(deviation=spread, freedom=30)
    return Table3(
        conditions={"factor": 4},
        rows=rows,
        target_tokens=1,
        train_pairs=1,
        epochs=1.0,
        log_spread=found,
        bleu_spread=found,
        log_paired=found,
        bleu_paired=found,
    )


def test_findings_hold_disagree_or_are_not_resolved() -> None:
    rows = (row("base", 5.0), row("a-h1", 6.0), row("c-n8", 6.0), row("e-learned", 5.01))
    verdicts = [each.verdict for each in judge(table(*rows, spread=0.01))]
    assert verdicts == ["holds", "disagrees", "not resolved: the difference is within the interval"]
    verdicts = [each.verdict for each in judge(table(*rows, spread=0.5))]
    assert verdicts == ["not resolved: the difference is within the interval"] * 3


def test_positions_are_as_good_only_if_they_are_near() -> None:
    near, far = (row("base", 5.0), row("e-learned", 5.01)), (row("base", 5.0), row("e-learned", 6))
    (verdict,) = [each.verdict for each in judge(table(*near, spread=0.001))]
    assert verdict == "holds: within 1.8 % of base"
    (verdict,) = [each.verdict for each in judge(table(*far, spread=0.001))]
    assert verdict == "disagrees"


def test_what_a_seed_does_to_all_rows_is_no_part_of_their_differences() -> None:
    rows = [(1.0, 2.0), (5.0, 6.0), (7.0, 8.0)]
    assert pool_paired(rows) == Spread(deviation=0.0, freedom=2)
    # By hand: rows (0, 2) and (0, 0) have residuals of 0.5, and one degree of freedom.
    assert pool_paired([(0.0, 2.0), (0.0, 0.0)]) == Spread(deviation=1.0, freedom=1)
    assert pool_paired([(1.0,), (2.0,)]) is None
    assert pool_paired([(1.0, math.inf), (2.0, 1.0)]) is None


def test_rates_follow_the_width_as_in_the_paper() -> None:
    full = {name: load_recipe(f"table3-{name}") for name in ("base", "c-d256", "c-d1024", "big")}
    small = {name: scaled(f"table3-{name}", 4) for name in full}
    for name, config in full.items():
        rates = [learning_rate(10_000, c.train, c.model.d_model) for c in (config, full["base"])]
        peaks = small[name].train.peak_rate / small["base"].train.peak_rate
        assert peaks == pytest.approx(rates[0] / rates[1])
    assert scaled("table3-base", 4, ["train.peak_rate=1e-3"]).train.peak_rate == 1e-3


@pytest.mark.parametrize(
    "override", ["model.dropout=0.3", "model.num_layers=2", "train.max_minutes=1", "train.seed=3"]
)
def test_what_rows_differ_in_cannot_be_set_for_all(override: str) -> None:
    with pytest.raises(ConfigError, match=f"Table 3 sets {override.partition('=')[0]} itself"):
        check_overrides([override])


def test_other_settings_can_be_set_for_all() -> None:
    check_overrides(["train.batch_tokens=300", "data.vocab_size=320", "decode.beam=1"])


def test_a_single_seed_decides_nothing() -> None:
    rows = (row("base", 5.0), row("d-ls0", 4.0, bleu=21.0), row("e-learned", 5.01))
    verdicts = [each.verdict for each in judge(table(*rows, spread=None))]
    assert [verdict.split()[0] for verdict in verdicts] == ["same", "opposite", "not"]


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.says)
def test_the_findings_are_those_of_the_papers_numbers(finding: object) -> None:
    rows = [
        row(name, each.perplexity or 0, each.bleu or 0)
        for recipe, each in RECIPES.items()
        if (name := recipe.removeprefix("table3-"))
    ]
    (judgement,) = [j for j in judge(table(*rows, spread=1e-4)) if j.finding == finding]
    assert judgement.verdict.startswith("holds")
    assert judgement.here == pytest.approx(judgement.paper)
