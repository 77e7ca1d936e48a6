"""Table 2: operations by formula and by counter, of recipes and of runs."""

import json
from pathlib import Path

import pytest
import torch

from headwise.config import ModelConfig, Vocab
from headwise.errors import ConfigError
from headwise.recipes import load_recipe
from headwise.runs.checkpoint import read_state
from headwise.runs.directory import RunDirectory
from headwise.workflows.reproduce.flops import count_training_flops, pair_flops
from headwise.workflows.reproduce.table2 import reproduce_table2
from headwise.workflows.reproduce.table2_view import table2_grids, table2_page
from tests.conftest import Headwise


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_heads": 2, "d_k": 5, "d_v": 9},
        {"norm_order": "pre", "tying": "untied", "num_layers": 3, "d_ff": 40},
        {"num_decoder_layers": 1},
    ],
)
def test_torch_counts_what_the_formula_says(changes: dict[str, object]) -> None:
    sizes: dict[str, object] = {"d_model": 24, "d_ff": 56, "num_layers": 2, "num_heads": 4}
    model = ModelConfig(**(sizes | changes))  # type: ignore[arg-type]
    overrides = [f"model.{key}={value}" for key, value in (sizes | changes).items()]
    config = load_recipe("base", overrides)
    assert config.model == model
    vocab = Vocab.shared(300)
    counted, pairs, length = count_training_flops(config, vocab, 256)
    # The loss sums the rows of the output matrix once a step: that is not a product of the model.
    assert counted / (pairs * pair_flops(model, vocab, length, length)) == pytest.approx(
        1, abs=0.02
    )


def test_the_base_model_by_hand() -> None:
    # 6 operations for each weight that a token meets; attention's own products beside.
    vocab = Vocab.shared(37_000)
    layer_weights = 6 * (4 * 512 * 512 + 2 * 512 * 2048) * 2 + 6 * 4 * 512 * 512
    weights = layer_weights + 37_000 * 512
    own = 6 * 3 * 2 * 30 * 512
    assert pair_flops(ModelConfig(), vocab, 30, 30) == 6 * 30 * (weights + own)


def test_recipes_and_runs_in_one_table(trained_run: Path, tmp_path: Path) -> None:
    names = ["demo", str(trained_run)]
    table = reproduce_table2(names, tmp_path)
    recipe, run = table.costs
    assert (recipe.target_tokens, recipe.minutes) == (None, 3)
    (last,) = RunDirectory(trained_run).steps()[-1:]
    state = read_state(RunDirectory(trained_run).step_directory(last))
    assert run.target_tokens == state.tokens
    assert run.minutes == state.minutes
    assert run.perplexity is not None
    assert run.flops is not None
    assert run.flops > 0
    assert [cost.name for cost in reproduce_table2(names, tmp_path).costs] == names
    ours, paper = table2_grids(table)
    assert len(ours.rows) == 2
    assert ("Transformer (base)", "27.3", "38.1", "3.3e+18", "3.3e+18") in paper.rows
    assert "newstest2014" in table2_page(table)


def test_a_stored_recipe_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = reproduce_table2(["demo"], tmp_path)
    monkeypatch.setattr("headwise.workflows.reproduce.table2._recipe_cost", None)
    assert reproduce_table2(["demo"], tmp_path).costs == first.costs
    assert set(json.loads((tmp_path / "table2.json").read_text())["cells"]) == {
        "rate of training's products",
        "recipe demo",
    }


def test_other_tasks_and_models_are_refused(trained_lm: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Table 2 is about Transformers that translate"):
        reproduce_table2([str(trained_lm)], tmp_path)


def test_the_command_prints_and_writes_it(tmp_path: Path, headwise: Headwise) -> None:
    threads = torch.get_num_threads()
    code, output, errors = headwise("reproduce", "table2", "demo", "--out", str(tmp_path))
    assert code == 0, errors
    assert torch.get_num_threads() == threads
    assert "by the clock" in output
    assert (tmp_path / "table2.html").exists()
    code, output, errors = headwise("reproduce", "table2", "nosuch", "--out", str(tmp_path))
    assert (code, output, errors.count("\n")) == (2, "", 1)
