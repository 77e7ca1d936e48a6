"""docs/scaling.md: its commands can be parsed, and its figures are what the recipes give."""

import re
import shlex
from pathlib import Path

import click
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headwise.cli import app
from headwise.config import Config, Vocab
from headwise.model import Transformer
from headwise.recipes import load_recipe

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text("utf-8")
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.replace("\\\n", "").splitlines()
]

UPDATE_TOKENS = 25_000
GPUS = 8
P100 = 9.5e12
"""What the paper takes one of its GPUs to sustain (Table 2)."""
HOURS = {"base": 12, "big": 3.5 * 24}
"""How long the paper trained (§5.2)."""
SECONDS = {"base": 0.4, "big": 1.0}
"""What an update took there (§5.2)."""


def parameters(config: Config) -> int:
    return config.model.count_parameters(Vocab.shared(config.data.vocab_size))


def flops(config: Config) -> float:
    return 6 * parameters(config) * UPDATE_TOKENS * config.train.max_steps


def hours(config: Config, rate: float) -> float:
    return flops(config) / (GPUS * rate) / 3600


BASE, BIG = load_recipe("base"), load_recipe("big")


def test_every_command_is_one_that_headwise_takes() -> None:
    verbs = []
    for command in COMMANDS:
        if command[0] == "torchrun":
            assert "--run" not in command  # torchrun's own
            command = command[command.index("-m") + 1 :]
        program, verb, *arguments = command
        assert program == "headwise"
        context = app.commands[verb].make_context(verb, arguments)
        load_recipe(context.params.get("recipe") or "base", context.params.get("overrides", ()))
        verbs.append(verb)
    assert verbs == ["prepare", "doctor", "train", "evaluate"]


def test_a_command_that_headwise_does_not_take_would_be_found() -> None:
    with pytest.raises(click.NoSuchOption, match="--nosuch"):
        app.commands["train"].make_context("train", ["base", "--run", "r", "--nosuch", "1"])


def test_the_batch_is_the_papers_however_it_is_divided() -> None:
    rows = re.findall(r"^\| (\d) \| (\d+) \| (\d) \|$", PAGE, re.MULTILINE)
    assert [int(processes) for processes, _, _ in rows] == [8, 4, 2, 1]
    for processes, tokens, accumulate in rows:
        assert int(processes) * int(tokens) * int(accumulate) == UPDATE_TOKENS
    (train,) = (command for command in COMMANDS if command[0] == "torchrun")
    assert "--nproc-per-node 8" in " ".join(train)
    assert f"train.batch_tokens={rows[0][1]}" in train


def test_a_forward_pass_costs_what_the_formula_says() -> None:
    length = 30
    model = Transformer(BASE.model, Vocab.shared(BASE.data.vocab_size))
    ids = torch.arange(4, 4 + length)[None]
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(ids, ids)
    weights = 2 * parameters(BASE) * length
    attention = 12 * length * BASE.model.d_model * BASE.model.num_layers * length
    # Biases and norms are parameters, but no products.
    assert counter.get_total_flops() == pytest.approx(weights + attention, rel=2e-3)
    assert f"or {attention / weights:.1%}".replace("%", " %") + f" for base at n = {length}" in PAGE


def row(label: str, *cells: str) -> str:
    return f"| {' | '.join((label, *cells))} |"


def test_what_the_models_take() -> None:
    both = (BASE, BIG)
    papers = [HOURS[name] * 3600 * GPUS * P100 for name in ("base", "big")]
    count = [parameters(config) for config in both]
    kept = [max(c.train.keep_last, c.train.average_last) for c in both]
    expected = [
        row("N, by `headwise config`", *(f"{n / 1e6:.1f} million" for n in count)),
        row("updates", *(f"{c.train.max_steps:,}" for c in both)),
        row(
            "target tokens: 25,000 × updates",
            *(f"{UPDATE_TOKENS * c.train.max_steps:.1e}" for c in both),
        ),
        row("FLOPs: 6 × N × 25,000 × updates", *(f"{flops(c):.1e}" for c in both)),
        row("the paper's Table 2: time × 8 × 9.5 TFLOP/s", *(f"{figure:.1e}" for figure in papers)),
        row(
            "so its P100s were kept busy",
            *(
                f"{flops(c) / paper:.0%}".replace("%", " %")
                for c, paper in zip(both, papers, strict=True)
            ),
        ),
        row(
            "weights, gradients, Adam's means: 16 × N bytes on each GPU",
            *(f"{16 * n / 1e9:.1f} GB" for n in count),
        ),
        row(
            "sent by each GPU for an update: 2 × 7/8 × 4 × N bytes",
            *(f"{2 * 7 / 8 * 4 * n / 1e9:.1f} GB" for n in count),
        ),
        row(
            "one checkpoint, weights and Adam's means: 12 × N bytes",
            *(f"{12 * n / 1e9:.1f} GB" for n in count),
        ),
        row(
            f"kept on disk: the best and the last {kept[0]}, or {kept[1]}",
            *(f"{12 * n * (last + 1) / 1e9:.1f} GB" for n, last in zip(count, kept, strict=True)),
        ),
    ]
    table = PAGE.partition("| calculated | base | big |\n|---|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == expected


def test_how_long_it_takes() -> None:
    expected = [
        row(
            f"{rate} TFLOP/s",
            *(
                cell
                for config in (BASE, BIG)
                for cell in (
                    f"{hours(config, rate * 1e12):.1f} hours",
                    f"{2 * GPUS * hours(config, rate * 1e12):.0f}",
                )
            ),
        )
        for rate in (3, 10, 30, 100)
    ]
    table = PAGE.partition("| big | at 2 a GPU-hour |\n|---|---|---|---|---|\n")[2]
    assert table.partition("\n\n")[0].splitlines() == expected


def test_the_figures_in_the_text() -> None:
    text = " ".join(PAGE.split())
    n = parameters(BASE)
    busy = flops(BASE) / (HOURS["base"] * 3600 * GPUS)
    assert f"is {busy / 1e12:.1f}. A data sheet's" in text
    assert f"{2 * 7 / 8 * 4 * n / 25e9 * 1000:.0f} ms an update for base" in text
    update = 6 * n * UPDATE_TOKENS / GPUS / 30e12
    assert f"computes for {update * 1000:.0f} ms" in text
    speed = UPDATE_TOKENS * BASE.train.max_steps / hours(BASE, 10e12) / 3600
    assert f"in {hours(BASE, 10e12):.1f} hours, t is about {round(speed, -3):,.0f}" in text
    every = BASE.train.save_every_minutes * 60 / SECONDS["base"]
    assert f"every {every:,.0f} updates" in text
    assert f"train.save_every_steps={every:.0f}" in PAGE
    assert f"(Big: {BIG.train.save_every_minutes * 60 / SECONDS['big']:.0f}, at 1.0 s" in text
    assert f"the last {BASE.train.average_last} span" in text
    assert f"averages the last {BIG.train.average_last}.)" in text
