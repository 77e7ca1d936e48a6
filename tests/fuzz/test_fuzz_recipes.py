"""Recipes in TOML files, and overrides of single settings."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import strategies as st

from headwise.config import Config, all_keys
from headwise.recipes import load_recipe
from tests.fuzz.conftest import Fuzz
from tests.fuzz.contract import result_or_refusal
from tests.fuzz.mutations import EXTREMES, ODD_TEXTS, Draw, mutated

VALID = Config().to_toml()

odd_toml = st.one_of(
    st.sampled_from(
        [
            *("true", "nan", "-inf", "1e999", "0x10", "1_000", "9" * 5000, "2026-01-01", "[]"),
            *("07:32:00", "{}", "{a = 1}", '[1, "a"]', '"""\n"""', "''", "", "=", "\\", "#"),
            *("[" * depth + "]" * depth for depth in (10, 5000)),
            *("{a = " * depth + "1" + "}" * depth for depth in (10, 5000)),
            *('"\\u0000"', '"\\ud800"', '"\\u007f"', '"\\n"', '"\u2028"', "\x7f"),
        ]
    ),
    st.sampled_from(EXTREMES).map(str),
    st.floats().map(str),
    st.sampled_from(ODD_TEXTS),
    st.text(max_size=5),
    st.text(max_size=5).map("{!r}".format),
)

odd_lines = st.sampled_from(
    [
        *("[model]", "[[model]]", "[model.d_ff]", "model = 1", "task = 3", "[x]", "\0", "\ufeff"),
        *("a" + ".a" * 2000 + " = 1", "[data" + ".a" * 2000 + "]", "format_version = 2"),
    ]
)  # fmt: skip


@st.composite
def recipes(draw: Draw) -> bytes:
    """A recipe with other values, lines moved, removed or added."""
    lines = VALID.splitlines()
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(["value", "value", "key", "remove", "add", "move"]))
        key, _, value = lines[place].partition("=")
        if change == "value":
            lines[place] = f"{key}= {draw(odd_toml)}"
        elif change == "key":
            deep = key.strip() + ".a" * 2000
            lines[place] = f"{draw(st.sampled_from([*ODD_TEXTS, deep, deep]))} = {value}"
        elif change == "add":
            lines.insert(place, draw(odd_lines))
        elif change == "move":
            lines.insert(place, lines.pop(draw(st.integers(0, len(lines) - 1))))
        elif len(lines) > 1:
            del lines[place]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


overrides = st.one_of(
    st.tuples(st.sampled_from(all_keys()), odd_toml).map("=".join),
    st.tuples(st.sampled_from(ODD_TEXTS), odd_toml).map("=".join),
    st.text(max_size=20),
)


def check_result(config: Config | None) -> None:
    if config is not None:
        text = config.to_toml()
        text.encode()
        assert Config.from_dict(tomllib.loads(text)) == config


def test_recipe_files(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        check_result(result_or_refusal(load_recipe, path))

    fuzz(recipes() | mutated(VALID.encode()), read, examples=60)


def test_overrides(fuzz: Fuzz) -> None:
    def read(given: list[str]) -> None:
        check_result(result_or_refusal(load_recipe, "base", given))

    fuzz(st.lists(overrides, min_size=1, max_size=3), read)


def read_name(name: str) -> None:
    check_result(result_or_refusal(load_recipe, name))


def test_names_of_recipes(fuzz: Fuzz) -> None:
    fuzz(st.sampled_from(ODD_TEXTS) | st.text(max_size=10), read_name, examples=30)


@pytest.mark.parametrize("name", ["\0", "\ud800"], ids=["a NUL", "a lone surrogate"])
def test_found_names_of_recipes(name: str) -> None:
    read_name(name)
