"""One head of attention, worked through by hand: every matrix, and where its first number is from.

Plain Python on lists: the matrices are small, the answer comes at once, and nothing is hidden in
a library call. A test proves that the model computes the same.

Paper: §3.2.1.
"""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import RequestError

Matrix = list[list[float]]

EXAMPLE: dict[str, Any] = {
    "X": [[1, 0, 1, 0], [0, 1, 0, 1]],
    "Wq": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.1, 0.2, 0.3]],
    "Wk": [[0.2, 0.3, 0.4], [0.5, 0.6, 0.7], [0.8, 0.9, 0.1], [0.2, 0.3, 0.4]],
    "Wv": [[0.3, 0.4, 0.5], [0.6, 0.7, 0.8], [0.9, 0.1, 0.2], [0.3, 0.4, 0.5]],
}
"""Two tokens of width 4, a head of width 3."""

_PROJECTED = ("X", "Wq", "Wk", "Wv")
_READY = ("Q", "K", "V")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A matrix to show."""

    name: str
    values: Matrix
    row_labels: list[str]
    column_labels: list[str] | None = None
    is_weights: bool = False
    """Whether the values are shares of 1, worth colouring."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the walk: what is done, why, its result, and one number worked out."""

    title: str
    formula: str
    reason: str
    tables: list[Table]
    worked: str = ""


@dataclass(frozen=True, kw_only=True)
class HeadInput:
    """What a walk starts from: the operands of attention, and what they were projected from."""

    q: Matrix
    k: Matrix
    v: Matrix
    x: Matrix | None
    weights: dict[str, Matrix]
    tokens: list[str]
    causal: bool


def load_head(path: Path | None) -> HeadInput:
    """Read the matrices of one head from a TOML or JSON file; without a file, the worked example.

    The file gives X, Wq, Wk and Wv, or Q, K and V themselves, as lists of rows; and, if it
    likes, `tokens` (a name for each row) and `causal = true` (no token may see a later one).
    """
    if path is None:
        return parse_head(EXAMPLE, "the example")
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8 text at byte {error.start}") from error
    except OSError as error:
        raise RequestError(f"{path}: cannot read the matrices: {error.strerror}") from error
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise RequestError(f"{path}: not valid {kind}: {error}") from error
    except RecursionError as error:
        raise RequestError(f"{path}: nested too deeply to be matrices") from error
    if not isinstance(values, dict):
        raise RequestError(f'{path}: expected matrices by name, as in {{"X": [[1, 0]], ...}}')
    return parse_head(values, str(path))


def parse_head(values: Mapping[str, Any], source: str) -> HeadInput:
    """Check the matrices and project X to Q, K and V if they are not given."""
    known = (*_PROJECTED, *_READY, "tokens", "causal")
    for key in values:
        if key not in known:
            raise RequestError(f"{source}: unknown key {key!r}: use {', '.join(known)}")
    wanted = _READY if any(name in values for name in _READY) else _PROJECTED
    for name in (*_PROJECTED, *_READY):
        if name in values and name not in wanted:
            raise RequestError(f"{source}: give either {', '.join(_PROJECTED)} or Q, K, V")
        if name in wanted and name not in values:
            raise RequestError(f"{source}: {name} is missing; needed are {', '.join(wanted)}")
    matrices = {name: _matrix(values[name], name, source) for name in wanted}
    if wanted == _PROJECTED:
        x, weights = matrices["X"], {name: matrices[name] for name in _PROJECTED[1:]}
        for name, weight in weights.items():
            _same(len(weight), len(x[0]), f"{source}: {name} has {{}} rows, X has {{}} columns")
        q, k, v = (_product(x, weights[name]) for name in ("Wq", "Wk", "Wv"))
    else:
        x, weights = None, {}
        q, k, v = (matrices[name] for name in _READY)
    _same(len(q[0]), len(k[0]), f"{source}: queries are {{}} wide, keys {{}}")
    _same(len(k), len(v), f"{source}: there are {{}} keys and {{}} values")
    causal = values.get("causal", False)
    if type(causal) is not bool:
        raise RequestError(f"{source}: causal = {causal!r} must be true or false")
    if causal:
        _same(len(q), len(k), f"{source}: causal attention with {{}} queries and {{}} keys")
    return HeadInput(
        q=q, k=k, v=v, x=x, weights=weights, tokens=_tokens(values, len(q), source), causal=causal
    )


def walk(head: HeadInput) -> list[Step]:
    """Compute softmax(Q K^T / sqrt(d_k)) V, keeping every step.

    Paper: §3.2.1, eq. 1.
    """
    queries = head.tokens
    keys = queries if len(head.k) == len(queries) else _numbered(len(head.k))
    d_k = len(head.k[0])
    scores = _product(head.q, _transposed(head.k))
    scaled = [[score / math.sqrt(d_k) for score in row] for row in scores]
    seen = [
        [s if not head.causal or column <= row else -math.inf for column, s in enumerate(values)]
        for row, values in enumerate(scaled)
    ]
    weights = [_softmax(row) for row in seen]
    output = _product(weights, head.v)

    def table(name: str, values: Matrix, labels: list[str], **rest: Any) -> Table:
        return Table(name=name, values=values, row_labels=labels, **rest)

    steps: list[Step] = []
    operands = [table("Q", head.q, queries), table("K", head.k, keys), table("V", head.v, keys)]
    if head.x is None:
        steps.append(
            Step(
                title="Queries, keys and values",
                formula="Q, K, V",
                reason="Each token asks with its query; each answers with its key and value.",
                tables=operands,
            )
        )
    else:
        steps.append(
            Step(
                title="Start from the tokens",
                formula="X",
                reason="One row for each token: its embedding, or the layer below's output.",
                tables=[table("X", head.x, queries)],
            )
        )
        steps.append(
            Step(
                title="Project to queries, keys and values",
                formula="Q = X Wq,  K = X Wk,  V = X Wv",
                reason="What a token looks for, what it offers to be found by, what it passes on.",
                tables=[
                    *(table(name, w, _numbered(len(w))) for name, w in head.weights.items()),
                    *operands,
                ],
                worked=_worked_product("Q", head.x[0], [r[0] for r in head.weights["Wq"]]),
            )
        )
    steps.append(
        Step(
            title="Compare every query with every key",
            formula="scores = Q Kᵀ",
            reason="A large dot product: this key is what that query looks for.",
            tables=[table("scores", scores, queries, column_labels=keys)],
            worked=_worked_product("scores", head.q[0], head.k[0]),
        )
    )
    steps.append(
        Step(
            title="Scale",
            formula=f"scores / √d_k,  d_k = {d_k},  √d_k = {number(math.sqrt(d_k))}",
            reason="Dot products grow with d_k; unscaled they would push the softmax to extremes.",
            tables=[table("scaled", scaled, queries, column_labels=keys)],
            worked=f"scaled[1,1] = {number(scores[0][0])} / {number(math.sqrt(d_k))}"
            f" = {number(scaled[0][0])}",
        )
    )
    if head.causal:
        steps.append(
            Step(
                title="Hide the future",
                formula="scaled[i, j] = −∞ where j > i",
                reason="A decoder may not look at tokens it has yet to produce.",
                tables=[table("masked", seen, queries, column_labels=keys)],
            )
        )
    steps.append(
        Step(
            title="Turn scores into weights",
            formula="weights = softmax(scaled), row by row",
            reason="Each row sums to 1: how a token divides its attention.",
            tables=[
                table("weights", weights, queries, column_labels=keys, is_weights=True),
            ],
            worked=_worked_softmax(seen[0], weights[0][0]),
        )
    )
    steps.append(
        Step(
            title="Mix the values",
            formula="Z = weights V",
            reason="The head's output: each token's mixture of what it attended to.",
            tables=[table("Z", output, queries)],
            worked=_worked_product("Z", weights[0], [row[0] for row in head.v]),
        )
    )
    return steps


def number(value: float) -> str:
    """Write a number with up to four decimals and no trailing zeros."""
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _matrix(value: Any, name: str, source: str) -> Matrix:
    if not isinstance(value, list) or not value or not all(isinstance(r, list) for r in value):
        raise RequestError(f"{source}: {name} must be a list of rows, as in [[1, 0], [0, 1]]")
    for index, row in enumerate(value, 1):
        if not row or len(row) != len(value[0]):
            raise RequestError(
                f"{source}: {name} row {index} has {len(row)} numbers, row 1 {len(value[0])}"
            )
        for entry in row:
            if type(entry) not in (int, float) or not math.isfinite(entry):
                raise RequestError(f"{source}: {name} row {index}: {entry!r} is not a number")
    return [[float(entry) for entry in row] for row in value]


def _tokens(values: Mapping[str, Any], count: int, source: str) -> list[str]:
    tokens = values.get("tokens", _numbered(count))
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise RequestError(f"{source}: tokens must be a list of strings")
    _same(len(tokens), count, f"{source}: {{}} tokens for {{}} rows of queries")
    return tokens


def _same(one: int, other: int, text: str) -> None:
    if one != other:
        raise RequestError(f"{text.format(one, other)}: they must be equal")


def _numbered(count: int) -> list[str]:
    return [str(index) for index in range(1, count + 1)]


def _product(a: Matrix, b: Matrix) -> Matrix:
    columns = _transposed(b)
    return [[math.fsum(map(_times, row, column)) for column in columns] for row in a]


def _times(a: float, b: float) -> float:
    return a * b


def _transposed(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def _softmax(row: list[float]) -> list[float]:
    largest = max(row)
    powers = [math.exp(value - largest) for value in row]
    return [power / math.fsum(powers) for power in powers]


def _worked_product(name: str, a: list[float], b: list[float]) -> str:
    terms = " + ".join(f"{number(x)}×{number(y)}" for x, y in zip(a, b, strict=True))
    return f"{name}[1,1] = {terms} = {number(math.fsum(map(_times, a, b)))}"


def _worked_softmax(row: list[float], weight: float) -> str:
    powers = [f"e^{number(value)}" for value in row if math.isfinite(value)]
    return f"weights[1,1] = {powers[0]} / ({' + '.join(powers)}) = {number(weight)}"
