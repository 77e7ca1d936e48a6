"""One head of attention, step by step: every matrix, and how its first number is computed.

Plain Python on lists: the matrices are small, and nothing is hidden in a library call. A test
proves that the model computes the same.

Paper: §3.2.1.
"""

import json
import math
import operator
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

_LARGEST = 128
"""Rows and columns of a matrix: larger ones would be unreadable and slow."""

_MOST_BYTES = 4 << 20
"""Of a file of matrices: enough for the largest in full precision."""

_LARGEST_NUMBER = 1e50
"""Products of three such numbers, summed, are still finite."""

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
    """Whether the values are shares of 1, to be coloured."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: what is done, why, its result, and how one number is computed."""

    title: str
    formula: str
    reason: str
    tables: list[list[Table]]
    """Rows of tables that belong side by side."""
    worked: str = ""


@dataclass(frozen=True, kw_only=True)
class HeadInput:
    """The inputs: the operands of attention, and what they were projected from."""

    q: Matrix
    k: Matrix
    v: Matrix
    x: Matrix | None
    projections: dict[str, Matrix]
    tokens: list[str]
    causal: bool


def load_head(path: Path | None) -> HeadInput:
    """Read the matrices of one head from a TOML or JSON file; without a file, the worked example.

    The file has X, Wq, Wk and Wv, or Q, K and V themselves, as lists of rows; and optionally
    `tokens` (a name for each row) and `causal = true` (no token may see a later one).
    """
    if path is None:
        return parse_head(EXAMPLE, "the example")
    is_json = path.suffix.lower() == ".json"
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise RequestError(f"{path}: larger than {_MOST_BYTES:,} bytes: is it the right file?")
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8 text at byte {error.start}") from error
    except OSError as error:
        raise RequestError(f"{path}: cannot read the matrices: {error.strerror}") from error
    try:
        values = json.loads(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # The parsers' own, too many digits, brackets.
        kind = "JSON" if is_json else "TOML"
        raise RequestError(f"{path}: not valid {kind}: {error}") from error
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
        x, projections = matrices["X"], {name: matrices[name] for name in _PROJECTED[1:]}
        for name, weight in projections.items():
            if len(weight) != len(x[0]):
                raise RequestError(
                    f"{source}: {name} has {len(weight)} rows and X {len(x[0])} columns: "
                    "they must be equal"
                )
        q, k, v = (_product(x, projections[name]) for name in ("Wq", "Wk", "Wv"))
    else:
        x, projections = None, {}
        q, k, v = (matrices[name] for name in _READY)
    if len(q[0]) != len(k[0]):
        raise RequestError(f"{source}: queries are {len(q[0])} wide and keys {len(k[0])}")
    if len(k) != len(v):
        raise RequestError(f"{source}: there are {len(k)} keys and {len(v)} values")
    causal = values.get("causal", False)
    if type(causal) is not bool:
        raise RequestError(f"{source}: causal = {causal!r} must be true or false")
    if causal and len(q) != len(k):
        raise RequestError(f"{source}: causal attention needs as many queries as keys")
    return HeadInput(
        q=q,
        k=k,
        v=v,
        x=x,
        projections=projections,
        tokens=_tokens(values, len(q), source),
        causal=causal,
    )


def walk(head: HeadInput) -> list[Step]:
    """Compute softmax(Q K^T / sqrt(d_k)) V, keeping every step.

    Paper: §3.2.1, eq. 1.
    """
    keys = head.tokens if len(head.k) == len(head.tokens) else _numbered(len(head.k))
    root = math.sqrt(len(head.k[0]))
    scores = _product(head.q, _transposed(head.k))
    scaled = [[score / root for score in row] for row in scores]
    seen = [
        [s if not head.causal or column <= row else -math.inf for column, s in enumerate(values)]
        for row, values in enumerate(scaled)
    ]
    weights = [_softmax(row) for row in seen]
    output = _product(weights, head.v)
    return [
        *_operand_steps(head, keys),
        Step(
            title="Compare every query with every key",
            formula="scores = Q Kᵀ",
            reason="A large dot product: this key is what that query looks for.",
            tables=[
                [Table(name="scores", values=scores, row_labels=head.tokens, column_labels=keys)]
            ],
            worked=_worked_product("scores", head.q[0], head.k[0]),
        ),
        Step(
            title="Scale",
            formula=f"scores / √d_k,  d_k = {len(head.k[0])},  √d_k = {number(root)}",
            reason="Dot products grow with d_k; unscaled they would push the softmax to extremes.",
            tables=[
                [Table(name="scaled", values=scaled, row_labels=head.tokens, column_labels=keys)]
            ],
            worked=f"scaled[1,1] = {number(scores[0][0])} / {number(root)}"
            f" = {number(scaled[0][0])}",
        ),
        *_mask_step(head, seen, keys),
        Step(
            title="Turn scores into weights",
            formula="weights = softmax of each row",
            reason="Each row sums to 1: how a token divides its attention.",
            tables=[
                [
                    Table(
                        name="weights",
                        values=weights,
                        row_labels=head.tokens,
                        column_labels=keys,
                        is_weights=True,
                    )
                ]
            ],
            worked=_worked_softmax(seen[0], weights[0][0]),
        ),
        Step(
            title="Mix the values",
            formula="Z = weights V",
            reason="The head's output: each token's mixture of what it attended to.",
            tables=[[Table(name="Z", values=output, row_labels=head.tokens)]],
            worked=_worked_product("Z", weights[0], [row[0] for row in head.v]),
        ),
    ]


def _operand_steps(head: HeadInput, keys: list[str]) -> list[Step]:
    operands = [
        Table(name="Q", values=head.q, row_labels=head.tokens),
        Table(name="K", values=head.k, row_labels=keys),
        Table(name="V", values=head.v, row_labels=keys),
    ]
    if head.x is None:
        return [
            Step(
                title="Start from queries, keys and values",
                formula="Q, K, V",
                reason="Each token asks with its query; each answers with its key and value.",
                tables=[operands],
            )
        ]
    projections = [
        Table(name=name, values=weight, row_labels=_numbered(len(weight)))
        for name, weight in head.projections.items()
    ]
    return [
        Step(
            title="Start from the tokens",
            formula="X",
            reason="One row for each token: its embedding, or the layer below's output.",
            tables=[[Table(name="X", values=head.x, row_labels=head.tokens)]],
        ),
        Step(
            title="Project to queries, keys and values",
            formula="Q = X Wq,  K = X Wk,  V = X Wv",
            reason="What a token looks for, what it offers to be found by, what it passes on.",
            tables=[projections, operands],
            worked=_worked_product("Q", head.x[0], [r[0] for r in head.projections["Wq"]]),
        ),
    ]


def _mask_step(head: HeadInput, seen: Matrix, keys: list[str]) -> list[Step]:
    if not head.causal:
        return []
    masked = Table(name="masked", values=seen, row_labels=head.tokens, column_labels=keys)
    return [
        Step(
            title="Hide the future",
            formula="scaled[i, j] = −∞ where j > i",
            reason="A decoder may not look at tokens it has yet to produce.",
            tables=[[masked]],
        )
    ]


def number(value: float) -> str:
    """Write a number with up to four decimals and no trailing zeros, or as a power of ten."""
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    if value != 0 and not 5e-5 <= abs(value) < 1e7:
        return f"{value:.3g}"
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _matrix(value: Any, name: str, source: str) -> Matrix:
    if not isinstance(value, list) or not value or not all(isinstance(r, list) for r in value):
        raise RequestError(f"{source}: {name} must be a list of rows, as in [[1, 0], [0, 1]]")
    if not value[0]:
        raise RequestError(f"{source}: {name} row 1 is empty")
    if len(value) > _LARGEST or len(value[0]) > _LARGEST:
        raise RequestError(
            f"{source}: {name} is {len(value)} × {len(value[0])}; "
            f"up to {_LARGEST} × {_LARGEST} can be explained"
        )
    for index, row in enumerate(value, 1):
        if len(row) != len(value[0]):
            raise RequestError(
                f"{source}: {name} row {index} has {len(row)} numbers, row 1 {len(value[0])}"
            )
        for entry in row:
            if type(entry) not in (int, float) or not abs(entry) <= _LARGEST_NUMBER:
                raise RequestError(
                    f"{source}: {name} row {index}: {str(entry)[:40]!r} is not a number "
                    f"from -{_LARGEST_NUMBER:g} to {_LARGEST_NUMBER:g}"
                )
    return [[float(entry) for entry in row] for row in value]


def _tokens(values: Mapping[str, Any], count: int, source: str) -> list[str]:
    tokens = values.get("tokens", _numbered(count))
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise RequestError(f"{source}: tokens must be a list of strings")
    if len(tokens) != count:
        raise RequestError(f"{source}: {len(tokens)} tokens for {count} rows of queries")
    for token in tokens:
        if not token.isprintable():
            raise RequestError(f"{source}: token {token!r} has characters that cannot be shown")
    return tokens


def _numbered(count: int) -> list[str]:
    return [str(index) for index in range(1, count + 1)]


def _product(a: Matrix, b: Matrix) -> Matrix:
    columns = _transposed(b)
    return [[math.fsum(map(operator.mul, row, column)) for column in columns] for row in a]


def _transposed(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def _softmax(row: list[float]) -> list[float]:
    largest = max(row)
    powers = [math.exp(value - largest) for value in row]
    return [power / math.fsum(powers) for power in powers]


def _worked_product(name: str, a: list[float], b: list[float]) -> str:
    terms = _sum([f"{_factor(x)}×{_factor(y)}" for x, y in zip(a, b, strict=True)])
    return f"{name}[1,1] = {terms} = {number(math.fsum(map(operator.mul, a, b)))}"


def _worked_softmax(row: list[float], weight: float) -> str:
    powers = [f"e^{_factor(value)}" for value in row if math.isfinite(value)]
    return f"weights[1,1] = {powers[0]} / ({_sum(powers)}) = {number(weight)}"


def _sum(terms: list[str]) -> str:
    if len(terms) > 8:
        terms = [*terms[:6], "…", terms[-1]]
    return " + ".join(terms)


def _factor(value: float) -> str:
    return f"({number(value)})" if value < 0 else number(value)
