import json
import math
from pathlib import Path

import pytest
import torch

from headwise.errors import RequestError
from headwise.inspect.explain import EXAMPLE, load_head, number, parse_head, walk
from headwise.inspect.explain_page import render_page
from headwise.inspect.explain_text import lines_of
from headwise.model import Allowed
from headwise.model.attention import attention


def tables(values: dict[str, object]) -> dict[str, list[list[float]]]:
    steps = walk(parse_head(values, "test"))
    return {table.name: table.values for s in steps for row in s.tables for table in row}


def rounded(matrix: list[list[float]], digits: int = 4) -> list[list[float]]:
    return [[round(value, digits) for value in row] for row in matrix]


def test_the_worked_example_has_its_right_numbers() -> None:
    found = tables(EXAMPLE)
    assert rounded(found["Q"]) == [[0.8, 1, 1.2], [0.5, 0.7, 0.9]]
    assert rounded(found["K"]) == [[1, 1.2, 0.5], [0.7, 0.9, 1.1]]
    assert rounded(found["V"]) == [[1.2, 0.5, 0.7], [0.9, 1.1, 1.3]]
    assert rounded(found["scores"]) == [[2.6, 2.78], [1.79, 1.97]]
    assert rounded(found["weights"]) == [[0.474, 0.526], [0.474, 0.526]]
    assert rounded(found["Z"]) == [[1.0422, 0.8156, 1.0156]] * 2


@pytest.mark.parametrize("causal", [False, True])
def test_the_walk_computes_what_the_model_computes(causal: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(5, width, generator=generator, dtype=torch.float64) for width in (3, 3, 7)
    )
    found = tables({"Q": q.tolist(), "K": k.tolist(), "V": v.tolist(), "causal": causal})
    allowed = Allowed(causal=causal)
    expected = attention(q[None, None], k[None, None], v[None, None], allowed)[0, 0]
    torch.testing.assert_close(torch.tensor(found["Z"], dtype=torch.float64), expected)


def test_more_keys_than_queries() -> None:
    found = tables({"Q": [[1, 0]], "K": [[1, 0], [0, 1], [1, 1]], "V": [[1], [2], [3]]})
    assert len(found["weights"][0]) == 3
    assert sum(found["weights"][0]) == pytest.approx(1)


def test_worked_numbers_are_the_tables_first_numbers() -> None:
    for step in walk(parse_head(EXAMPLE, "test")):
        if step.worked:
            name = step.worked.split("[")[0]
            table = next(t for row in step.tables for t in row if t.name == name)
            assert step.worked.endswith(f"= {number(table.values[0][0])}")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "X is missing; needed are X, Wq, Wk, Wv"),
        ({"Q": [[1]], "K": [[1]]}, "V is missing; needed are Q, K, V"),
        ({"Q": [[1]], "X": [[1]]}, "give either X, Wq, Wk, Wv or Q, K, V"),
        ({"q": [[1]]}, "unknown key 'q': use X, "),
        ({**EXAMPLE, "X": 3}, "X must be a list of rows"),
        ({**EXAMPLE, "X": []}, "X must be a list of rows"),
        ({**EXAMPLE, "X": [[]]}, "X row 1 is empty"),
        ({**EXAMPLE, "X": [[0] * 129]}, "X is 1 × 129; up to 128 × 128 can be explained"),
        ({**EXAMPLE, "X": [[1, 0, 1, 10**400]]}, "is not a number from -1e.50 to 1e.50"),
        ({**EXAMPLE, "X": [[1, 0, 1, 1e300]]}, "is not a number from"),
        ({**EXAMPLE, "tokens": ["a", "\ud800"]}, "has characters that cannot be shown"),
        ({**EXAMPLE, "tokens": ["a", "\x1b[31m"]}, "has characters that cannot be shown"),
        ({**EXAMPLE, "X": [[1, 0, 1, 0], [1]]}, "X row 2 has 1 numbers, row 1 4"),
        ({**EXAMPLE, "X": [[1, 0, 1, "a"]]}, "X row 1: 'a' is not a number"),
        ({**EXAMPLE, "X": [[1, 0, 1, True]]}, "'True' is not a number"),
        ({**EXAMPLE, "X": [[1, 0, 1, float("nan")]]}, "'nan' is not a number"),
        ({**EXAMPLE, "X": [[1, 0]]}, "Wq has 4 rows and X 2 columns: they must be equal"),
        ({**EXAMPLE, "tokens": ["a"]}, "1 tokens for 2 rows of queries"),
        ({**EXAMPLE, "tokens": "ab"}, "tokens must be a list of strings"),
        ({**EXAMPLE, "causal": 1}, "causal = 1 must be true or false"),
        ({"Q": [[1]], "K": [[1, 2]], "V": [[1]]}, "queries are 1 wide and keys 2"),
        ({"Q": [[1]], "K": [[1]], "V": [[1], [2]]}, "there are 1 keys and 2 values"),
        (
            {"Q": [[1]], "K": [[1], [2]], "V": [[1], [2]], "causal": True},
            "causal attention needs as many queries as keys",
        ),
    ],
)
def test_wrong_matrices_are_one_clear_error(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        parse_head(values, "test")


def test_files_are_toml_or_json(tmp_path: Path) -> None:
    toml, jsonfile = tmp_path / "m.toml", tmp_path / "m.json"
    toml.write_text("Q = [[1]]\nK = [[1]]\nV = [[2]]\ntokens = ['a']\n")
    jsonfile.write_text(json.dumps({"Q": [[1]], "K": [[1]], "V": [[2]], "tokens": ["a"]}))
    assert load_head(toml) == load_head(jsonfile)
    for path, text, complaint in (
        (toml, "Q = [", "m.toml: not valid TOML"),
        (jsonfile, "{", "m.json: not valid JSON"),
        (jsonfile, "[1]", "m.json: expected matrices by name"),
        (jsonfile, "[" * 100_000, "m.json: not valid JSON"),
        (jsonfile, "9" * 5000, "m.json: not valid JSON"),
        (toml, "Q = " + "[" * 5000, "m.toml: not valid TOML"),
    ):
        path.write_text(text)
        with pytest.raises(RequestError, match=complaint):
            load_head(path)
    toml.write_bytes(b"\xff")
    with pytest.raises(RequestError, match="not UTF-8 text at byte 0"):
        load_head(toml)
    with pytest.raises(RequestError, match="cannot read the matrices: No such file"):
        load_head(tmp_path / "missing.toml")


def test_numbers_are_written_short() -> None:
    values = (1.0, 0.5, -0.0, 1.0422499, float("-inf"), 100.0, -0.00001, 1e100)
    shown = ["1", "0.5", "0", "1.0422", "−∞", "100", "-1e-05", "1e+100"]
    assert [number(v) for v in values] == shown


def test_the_largest_numbers_stay_finite() -> None:
    huge = [[1e50] * 3, [-1e50] * 3]
    for name, values in tables({"Q": huge, "K": huge, "V": huge}).items():
        assert all(math.isfinite(value) for row in values for value in row), name


def test_negative_factors_stand_in_brackets() -> None:
    (worked,) = [
        step.worked
        for step in walk(parse_head({"Q": [[-1, 2]], "K": [[3, -4]], "V": [[1]]}, "test"))
        if step.worked.startswith("scores")
    ]
    assert worked == "scores[1,1] = (-1)×3 + 2×(-4) = -11"


def test_a_large_matrix_says_what_it_leaves_out() -> None:
    ones = [[1] * 20 for _ in range(18)]
    text = [
        line.text for line in lines_of(walk(parse_head({"Q": ones, "K": ones, "V": ones}, "t")), 80)
    ]
    assert any("… 2 more rows and 4 more columns: see --html" in line for line in text)
    assert any(line.endswith("+ … + 1×1 = 20") for line in text)


def test_the_page_stands_alone() -> None:
    page = render_page(walk(parse_head(EXAMPLE, "test")))
    assert "1.0422" in page
    assert "://" not in page
    assert "<script" not in page
    assert 'class="shade-24">0.474' in page
