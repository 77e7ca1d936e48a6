"""Table 1: its layers, its measures, its page, and going on after a kill."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headwise.errors import CheckpointError, ConfigError
from headwise.model.attention import explicit_attention
from headwise.workflows.reproduce import table1 as table1_module
from headwise.workflows.reproduce.layers import KERNEL, KINDS, WINDOW, LayerKind
from headwise.workflows.reproduce.store import CellStore
from headwise.workflows.reproduce.table1 import (
    Table1,
    count_flops,
    exponents,
    holds_from,
    measure_path,
    reproduce_table1,
)
from headwise.workflows.reproduce.table1_view import table1_grids, table1_page
from tests.conftest import Headwise

BY_NAME = {kind.name: kind for kind in KINDS}


def reproduce(out: Path) -> Table1:
    return reproduce_table1(out, lengths=(4, 8, 16), widths=(4, 8), path_lengths=(3, 40), rounds=1)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table1_module, "_LEAST_SECONDS", 0)


@pytest.mark.parametrize("kind", KINDS[:4], ids=lambda kind: kind.name)
def test_torch_counts_what_the_formula_says(kind: LayerKind) -> None:
    for length, width in ((7, 16), (300, 64), (64, 128)):
        assert count_flops(kind, length, width) == kind.flops(length, width)


def test_work_in_blocks_is_a_multiple_of_the_windows() -> None:
    kind = BY_NAME["restricted"]
    ratios = [count_flops(kind, n, 64) / kind.flops(n, 64) for n in (1024, 2048, 4096)]
    assert 1 < ratios[-1] < 8
    assert ratios[-1] == pytest.approx(ratios[0], rel=0.1), "it grows with n as the formula does"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_paths_are_as_long_as_the_formula_says(kind: LayerKind) -> None:
    for length in (2, 3, 9, 10, 28, 70):
        assert measure_path(kind, length) == kind.longest_path(length), length


def expected_output(name: str, x: Tensor, weights: Tensor) -> Tensor:
    """Write each layer out, position by position."""
    length = x.shape[0]
    if name in ("self-attention", "restricted"):
        reach = length if name == "self-attention" else WINDOW // 2
        mask = torch.tensor([[abs(q - k) <= reach for k in range(length)] for q in range(length)])
        return explicit_attention(x[None, None], x[None, None], x[None, None], mask)[0, 0]
    if name == "recurrent":
        rows = [torch.tanh(x[0])]
        for position in x[1:]:
            rows.append(torch.tanh(position + rows[-1] @ weights))
        return torch.stack(rows)
    return torch.stack(
        [
            sum(
                (
                    weights[:, :, tap] @ x[place - (KERNEL - 1 - tap)]
                    for tap in range(KERNEL)
                    if place >= KERNEL - 1 - tap
                ),
                torch.zeros(x.shape[1], dtype=x.dtype),
            )
            for place in range(length)
        ]
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_layers_compute_what_they_are_called(kind: LayerKind) -> None:
    torch.manual_seed(1)
    x = torch.randn(70, 8, dtype=torch.float64)
    weights = kind.weights(8).double()
    found = kind.apply(x, weights, 0)
    torch.testing.assert_close(found, expected_output(kind.name, x, weights), atol=1e-12, rtol=0)


def test_exponents_and_where_they_begin() -> None:
    sizes = [2, 4, 8, 16]
    assert exponents(sizes, [n**1.5 for n in sizes]) == pytest.approx([1.5] * 3)
    assert holds_from(sizes, [5, 6, 12, 24], 1) == 4
    assert holds_from(sizes, [float(n) for n in sizes], 1) == 2
    assert holds_from(sizes, [1, 2, 4, 4.1], 1) is None


def test_a_table_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    measure = table1_module._measure

    def counted(kind: LayerKind, length: int, width: int, rounds: int) -> dict[str, float]:
        measured.append(f"{kind.name} {length} x {width}")
        if len(measured) == 6:
            raise KeyboardInterrupt
        return measure(kind, length, width, rounds)

    monkeypatch.setattr(table1_module, "_measure", counted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path)
    stored = json.loads((tmp_path / "table1.json").read_text())["cells"]
    assert len(measured) == 6
    assert set(measured[:5]) <= set(stored)
    table = reproduce(tmp_path)
    assert sorted(measured[:5] + measured[6:]) == sorted(set(measured)), "none was measured twice"
    again = reproduce(tmp_path)
    assert again == table


def test_other_conditions_are_another_table(tmp_path: Path) -> None:
    reproduce(tmp_path)
    with pytest.raises(ConfigError, match=r"rounds was 1 and is 2\. Choose another --out"):
        reproduce_table1(
            tmp_path, lengths=(4, 8, 16), widths=(4, 8), path_lengths=(3, 40), rounds=2
        )
    (tmp_path / "table1.json").write_text("[]")
    with pytest.raises(CheckpointError, match="not the results of `headwise reproduce`"):
        reproduce(tmp_path)


def test_a_stored_cell_is_not_measured_again(tmp_path: Path) -> None:
    assert CellStore(tmp_path / "new" / "t.json", {"a": 1}).cell("x", lambda: [1.5]) == [1.5]
    assert CellStore(tmp_path / "new" / "t.json", {"a": 1}).cell("x", lambda: [2.5]) == [1.5]


def test_disagreement_with_the_paper_is_said(tmp_path: Path) -> None:
    table = reproduce(tmp_path)
    costs, paths = table1_grids(table)
    assert [row[0] for row in costs.rows] == [kind.title for kind in KINDS]
    assert {row[-1] for row in paths.rows} == {"yes"}
    missing = [row.title for row in table.rows if None in row.holds_from]
    said = " ".join(costs.notes)
    assert all(title in said for title in missing)
    page = table1_page(table)
    assert page.count('<svg class="chart"') == 2
    assert "O(n²·d)" in page


def test_the_command_prints_and_writes_it(tmp_path: Path, headwise: Headwise) -> None:
    sizes = ("--lengths", "4,8", "--widths", "4,8", "--path-lengths", "2,3", "--rounds", "1")
    code, output, errors = headwise("reproduce", "table1", *sizes, "--out", str(tmp_path / "t"))
    assert code == 0, errors
    assert "Self-attention" in output
    assert (tmp_path / "t" / "table1.html").exists()
    assert set(json.loads((tmp_path / "t" / "table1.json").read_text())) == {
        "conditions",
        "cells",
        "rows",
    }
    for wrong in ("8,4", "8", "1,2", "a,b"):
        code, output, errors = headwise("reproduce", "table1", "--lengths", wrong)
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert "two or more whole numbers" in errors
