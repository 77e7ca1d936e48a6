"""What the paper prints, and where a config departs from it.

The shipped recipes `base`, `big` and `table3-*` are the paper's own experiments; a config that
equals one of them departs from nothing. Their settings live in the recipes; here stands only
what the paper says about them.
"""

from dataclasses import dataclass
from typing import Any

from headwise.config import Config, Vocab
from headwise.recipes import load_recipe


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of the paper and the figures printed for it."""

    recipe: str
    title: str
    overrides: tuple[str, ...] = ()
    """What the paper changes of the recipe."""
    perplexity: float | None = None
    """Per word-piece, on newstest2013."""
    bleu: float | None = None
    """On newstest2013, tokenised."""
    parameters: int | None = None
    """In millions."""


def _row(recipe: str, title: str, ppl: float, bleu: float, millions: int | None) -> Experiment:
    return Experiment(
        recipe=f"table3-{recipe}",
        title=f"Table 3 {title}",
        perplexity=ppl,
        bleu=bleu,
        parameters=millions,
    )


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(recipe="base", title="the base model"),
    Experiment(recipe="big", title="the big model"),
    Experiment(
        recipe="big",
        title="the big model, English-French",
        overrides=("data.vocab_size=32000", "model.dropout=0.1"),
    ),
    _row("base", "base", 4.92, 25.8, 65),
    _row("a-h1", "row (A), h = 1", 5.29, 24.9, None),
    _row("a-h4", "row (A), h = 4", 5.00, 25.5, None),
    _row("a-h16", "row (A), h = 16", 4.91, 25.8, None),
    _row("a-h32", "row (A), h = 32", 5.01, 25.4, None),
    _row("b-dk16", "row (B), d_k = 16", 5.16, 25.1, 58),
    _row("b-dk32", "row (B), d_k = 32", 5.01, 25.4, 60),
    _row("c-n2", "row (C), N = 2", 6.11, 23.7, 36),
    _row("c-n4", "row (C), N = 4", 5.19, 25.3, 50),
    _row("c-n8", "row (C), N = 8", 4.88, 25.5, 80),
    _row("c-d256", "row (C), d_model = 256", 5.75, 24.5, 28),
    _row("c-d1024", "row (C), d_model = 1024", 4.66, 26.0, 168),
    _row("c-ff1024", "row (C), d_ff = 1024", 5.12, 25.4, 53),
    _row("c-ff4096", "row (C), d_ff = 4096", 4.75, 26.2, 90),
    _row("d-drop0", "row (D), dropout 0.0", 5.77, 24.6, None),
    _row("d-drop2", "row (D), dropout 0.2", 4.95, 25.5, None),
    _row("d-ls0", "row (D), label smoothing 0.0", 4.67, 25.3, None),
    _row("d-ls2", "row (D), label smoothing 0.2", 5.47, 25.7, None),
    _row("e-learned", "row (E), learned positions", 4.92, 25.7, None),
    _row("big", "big", 4.33, 26.4, 213),
)

PAPER_VOCABULARIES = {
    37_000: "English-German",
    32_000: "English-French",
    40_960: "the one Table 3's parameter counts imply",
}
"""The vocabulary sizes that stand in the paper or follow from it (§5.1)."""

_SECTIONS = {
    "data.vocab_size": "§5.1",
    "model.kind": "§3",
    "model.d_model": "§3.1",
    "model.d_ff": "§3.3",
    "model.num_layers": "§3.1",
    "model.num_heads": "§3.2.2",
    "model.d_k": "§3.2.2",
    "model.d_v": "§3.2.2",
    "model.attention_bias": "§3.2.2 and Table 3",
    "model.norm_order": "§3.1",
    "model.positions": "§3.5",
    "model.tying": "§3.4",
    "model.dropout": "§5.4",
    "model.attention_dropout": "§5.4",
    "train.batch_tokens × accumulate": "§5.1",
    "train.schedule": "§5.3",
    "train.peak_rate": "§5.3",
    "train.warmup_steps": "§5.3",
    "train.adam_beta1": "§5.3",
    "train.adam_beta2": "§5.3",
    "train.adam_epsilon": "§5.3",
    "train.label_smoothing": "§5.4",
    "train.max_steps": "§5.2",
    "train.max_minutes": "§5.2",
    "train.save_every_steps": "§6.1",
    "train.save_every_minutes": "§6.1",
    "train.average_last": "§6.1",
    "decode.beam": "§6.1",
    "decode.alpha": "§6.1",
    "decode.penalty": "§6.1",
    "decode.stop": "§6.1",
    "decode.max_extra_tokens": "§6.1",
}
"""Where the paper fixes each setting. What is not listed (the seed) it leaves open."""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """One setting that differs from the paper's experiment it is compared with."""

    key: str
    value: object
    paper: object
    section: str


def compare_with_paper(config: Config) -> tuple[Experiment, list[Departure]]:
    """Find the paper's experiment that a config is, or starts from, and what differs from it.

    That is the experiment with the most settings of its own that the config shares in full;
    the base model shares none and is what remains when no other fits.
    """
    ours = _settings(config)
    base = _settings(load_recipe("base"))
    nearest, own_settings, differing = EXPERIMENTS[0], -1, list(ours)
    for experiment in EXPERIMENTS:
        theirs = _settings(load_recipe(experiment.recipe, experiment.overrides))
        if ours["data.vocab_size"] in PAPER_VOCABULARIES:
            theirs["data.vocab_size"] = base["data.vocab_size"] = ours["data.vocab_size"]
        own = [key for key in theirs if theirs[key] != base[key]]
        if any(ours[key] != theirs[key] for key in own):
            continue
        differs = [key for key in ours if ours[key] != theirs[key]]
        if (len(own), -len(differs)) > (own_settings, -len(differing)):
            nearest, own_settings, differing = experiment, len(own), differs
    paper = _settings(load_recipe(nearest.recipe, nearest.overrides))
    return nearest, [
        Departure(key=key, value=ours[key], paper=paper[key], section=_SECTIONS[key])
        for key in differing
    ]


def _settings(config: Config) -> dict[str, Any]:
    """List the settings that the paper fixes, by key."""
    tables = config.to_dict()
    settings = {
        f"{section}.{key}": value
        for section, table in tables.items()
        if isinstance(table, dict)
        for key, value in table.items()
        if f"{section}.{key}" in _SECTIONS
    }
    # Many small batches accumulated are the paper's one large batch.
    train = config.train
    settings["train.batch_tokens × accumulate"] = train.batch_tokens * train.accumulate
    return {key: settings[key] for key in _SECTIONS}


def describe_size(config: Config) -> str:
    """Say how many parameters a config has and, for a row of Table 3, how many are printed."""
    count = config.model.count_parameters(Vocab.shared(config.data.vocab_size)) / 1e6
    experiment, departures = compare_with_paper(config)
    text = f"{count:.1f} million parameters"
    if departures or not experiment.recipe.startswith("table3-"):
        return text
    printed = "no count" if experiment.parameters is None else f"{experiment.parameters}"
    return f"{text}; {experiment.title}, for which the paper prints {printed}"


def describe_departures(config: Config) -> str:
    """Say which experiment of the paper a config is or starts from, and every departure from it."""
    experiment, departures = compare_with_paper(config)
    if not departures:
        lines = [f"No departure from the paper: this is {experiment.title}."]
    else:
        count = "1 departure" if len(departures) == 1 else f"{len(departures)} departures"
        lines = [f"{count} from the paper, compared with {experiment.title}:"]
        width = max(len(departure.key) for departure in departures)
        lines += [
            f"  {d.key:{width}}  {_plain(d.value)}, where {d.section} has {_plain(d.paper)}"
            for d in departures
        ]
    if not departures and experiment.perplexity is not None:
        lines.append(
            f"The paper reports perplexity {experiment.perplexity:.2f} and "
            f"BLEU {experiment.bleu:.1f} on newstest2013."
        )
    return "\n".join(lines)


def _plain(value: object) -> str:
    return f"{value:,}" if type(value) is int else str(value)
