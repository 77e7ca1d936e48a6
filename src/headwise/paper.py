"""What the paper prints, and where a config departs from it.

The shipped recipes `base`, `big`, `table3-*`, `parsing-wsj` and `parsing-semi` are the paper's own
experiments; a config that equals one of them departs from nothing. Their settings live in the
recipes; here stands only what the paper says about them.
"""

from dataclasses import dataclass
from typing import Any

from headwise.config import AnyConfig, toml_value
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
    f1: float | None = None
    """Of the parser, on section 23 of the WSJ."""


def _row(recipe: str, title: str, ppl: float, bleu: float, millions: int | None) -> Experiment:
    return Experiment(
        recipe=f"table3-{recipe}",
        title=f"Table 3 {title}",
        perplexity=ppl,
        bleu=bleu,
        parameters=millions,
    )


_ENGLISH_FRENCH = "data.vocab_size=32000"

_NEAR = 5
"""Departures with which a config is still a variant of an experiment."""

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(recipe="base", title="the base model"),
    Experiment(
        recipe="base",
        title="the base model, English-French",
        overrides=(_ENGLISH_FRENCH,),
    ),
    Experiment(recipe="big", title="the big model"),
    Experiment(
        recipe="big",
        title="the big model, English-French",
        overrides=(_ENGLISH_FRENCH, "model.dropout=0.1"),
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
    Experiment(recipe="parsing-wsj", title="the parser of §6.3, WSJ only", f1=91.3),
    Experiment(recipe="parsing-semi", title="the parser of §6.3, semi-supervised", f1=92.7),
)

_SECTIONS = {
    "task": "§1",
    "data.input": "§3.4",
    "data.vocab_size": "§5.1",
    "data.joint": "§5.1",
    "data.subwords": "§5.1",
    "data.stack": "§3.4",
    "data.shift": "§5.4",
    "data.flip": "§5.4",
    "data.time_masks": "§5.4",
    "data.frequency_masks": "§5.4",
    "model.kind": "§3",
    "model.d_model": "§3.1",
    "model.d_ff": "§3.3",
    "model.num_layers": "§3.1",
    "model.num_decoder_layers": "§3.1",
    "model.num_heads": "§3.2.2",
    "model.d_k": "§3.2.2",
    "model.d_v": "§3.2.2",
    "model.attention": "§3.2.1",
    "model.window": "§4",
    "model.attention_bias": "§3.2.2",
    "model.norm_order": "§3.1",
    "model.norm_epsilon": "§3.1",
    "model.activation": "§3.3",
    "model.positions": "§3.5",
    "model.tying": "§3.4",
    "model.scale_embeddings": "§3.4",
    "model.embedding_norm": "§3.5",
    "model.token_types": "§3.5",
    "model.pooling": "§3.1",
    "model.dropout": "§5.4",
    "model.attention_dropout": "§5.4",
    "model.aligned_input": "§3.1",
    "model.subsampling": "§1",
    "train.batch_tokens × accumulate": "§5.1",
    "train.schedule": "§5.3",
    "train.decay_by": "§5.3",
    "train.warmup_steps": "§5.3",
    "train.adam_beta1": "§5.3",
    "train.adam_beta2": "§5.3",
    "train.adam_epsilon": "§5.3",
    "train.clip_norm": "§5.3",
    "train.label_smoothing": "§5.4",
    "train.max_steps": "§5.2",
    "train.max_epochs": "§5.2",
    "train.max_tokens": "§5.2",
    "train.max_minutes": "§5.2",
    "train.patience": "§5.2",
    "train.save_every_steps": "§6.1",
    "train.save_every_minutes": "§6.1",
    "train.average_last": "§6.1",
    "decode.beam": "§6.1",
    "decode.alpha": "§6.1",
    "decode.penalty": "§6.1",
    "decode.stop": "§6.1",
    "decode.max_extra_tokens": "§6.1",
    "decode.constrained": "§6.3",
}
"""Where the paper fixes each setting. What is not listed (the seed) it leaves open."""

_PARSING = "parsing"

_PARSING_SECTIONS = dict.fromkeys(
    (
        "data.vocab_size",
        "model.d_model",
        "model.num_layers",
        "model.num_decoder_layers",
        "decode.beam",
        "decode.alpha",
        "decode.max_extra_tokens",
    ),
    "§6.3",
)
"""Where it fixes other values for its parser."""

_PARSING_OPEN = ("model.dropout", "model.attention_dropout", "model.tying", "train.warmup_steps")
"""What it chose for its parser by experiment and does not print, and tying, which cannot be that of
translation."""


_ABSENT: dict[str, object] = {
    "data.stack": 1,
    "data.shift": 0,
    "data.flip": False,
    "data.time_masks": 0,
    "data.frequency_masks": 0,
    "model.pooling": "none",
}
"""Settings that the paper's tasks do not have, at the value that would change nothing there."""

_REGULARISATION = "dropout and label smoothing alone against overfitting"

_SAYS = {
    "task": "translation, by an encoder and a decoder",
    "data.input": "words",
    "data.stack": "a position for each token",
    "data.shift": _REGULARISATION,
    "data.flip": _REGULARISATION,
    "data.time_masks": _REGULARISATION,
    "data.frequency_masks": _REGULARISATION,
    "model.kind": "a Transformer; recurrent models are what it is compared with",
    "model.attention": "attention over all positions",
    "model.window": "restricted attention as a plan, not in its models",
    "model.attention_bias": "biases, which Table 3's parameter counts need",
    "model.norm_epsilon": "no value, and the authors' code 1e-6",
    "model.scale_embeddings": "embeddings multiplied by sqrt(d_model)",
    "model.embedding_norm": "embeddings and positions added, without a norm",
    "model.token_types": "embeddings and positions alone",
    "model.subsampling": "no convolutions",
    "model.pooling": "a decoder that reads every position of the encoder's output",
    "model.num_decoder_layers": "as many layers in the decoder as in the encoder",
    "model.aligned_input": "a decoder whose input is embeddings and positions alone, also in §6.3",
    "train.schedule": "d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)",
    "train.decay_by": "a rate that follows the steps",
    "train.clip_norm": "no clipping",
    "train.max_epochs": "a limit by steps",
    "train.max_tokens": "a limit by steps",
    "train.max_minutes": "no time limit",
    "train.patience": "a limit by steps",
    "train.save_every_steps": "checkpoints by the clock",
    "decode.constrained": "a search that does not know what a tree is",
}
"""What the paper has where its value as a setting would not say it."""


_LESS, _MORE, _OTHER = "less", "more", "other"

_REASONS: dict[tuple[str, str], str] = {
    ("data.input", _OTHER): "patches of images and frames of sounds stand where words do",
    ("data.vocab_size", _LESS): "less text has fewer words worth an entry of their own",
    ("data.stack", _MORE): "joined frames make a shorter sequence, which is quicker",
    ("data.shift", _MORE): "few images are learned by heart if they are always at the same place",
    ("data.flip", _OTHER): "what is mirrored is still of its class, and twice as many images",
    ("data.time_masks", _MORE): "few recordings are learned by heart if all of each is heard",
    ("data.frequency_masks", _MORE): "few voices are learned by heart if all bands are heard",
    ("data.joint", _OTHER): "languages with few words in common gain little from sharing",
    ("model.d_model", _LESS): "a narrower model is quicker, and needs less text",
    ("model.d_ff", _LESS): "fewer parameters to compute and to learn",
    ("model.num_layers", _LESS): "fewer layers are quicker to train",
    ("model.num_decoder_layers", _LESS): "a decoder of few layers is quicker",
    ("model.num_heads", _LESS): "a narrow model has room for fewer heads",
    ("model.d_k", _LESS): "a narrower model has narrower heads",
    ("model.d_v", _LESS): "a narrower model has narrower heads",
    ("model.attention", _OTHER): "long sequences cost less",
    ("model.norm_order", _OTHER): "norms before the sub-layers train without a long warm-up",
    ("model.norm_epsilon", _MORE): "later models add more, as GPT-2 does",
    ("model.activation", _OTHER): "later models learn better with a smooth activation",
    ("model.scale_embeddings", _OTHER): "learned positions are as small as the embeddings",
    ("model.embedding_norm", _OTHER): "whatever is added, the encoder reads it at one scale",
    ("model.token_types", _MORE): "BERT has them, to tell two texts apart",
    ("model.subsampling", _OTHER): "convolutions find sounds that cross the edges of positions",
    ("model.pooling", _OTHER): "a single answer follows from a single vector",
    ("model.tying", _OTHER): "two vocabularies cannot share one matrix",
    ("model.dropout", _MORE): "a small text is learned by heart without it",
    ("model.dropout", _LESS): "a large text, or a short training, is not learned by heart",
    ("model.aligned_input", _OTHER): "a small model hardly learns which word it has reached",
    ("train.batch_tokens × accumulate", _LESS): "more updates fit into the same time",
    ("train.schedule", _OTHER): "the rate has come down when training ends",
    ("train.decay_by", _OTHER): "training ends on time, whatever the machine",
    ("train.warmup_steps", _LESS): "a short training cannot warm up for long",
    ("train.clip_norm", _MORE): "a bad batch cannot throw the model off",
    ("train.max_steps", _LESS): "a small text is learned sooner",
    ("train.max_minutes", _MORE): "the time there is decides",
    ("train.patience", _MORE): "training ends when it no longer helps",
    ("train.save_every_steps", _MORE): "checkpoints come at the same steps on every machine",
    ("train.save_every_minutes", _LESS): "a short training is averaged over its last minutes",
    ("decode.beam", _LESS): "a narrower beam is quicker",
    ("decode.constrained", _OTHER): "every output is a tree over the words",
}
"""Why people mostly depart from the paper in a setting, by which way they do."""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """One setting that differs from the paper's experiment it is compared with."""

    key: str
    value: object
    paper: object
    section: str

    @property
    def says(self) -> str:
        """What the paper has."""
        return _SAYS.get(self.key, toml_value(self.paper))

    @property
    def reason(self) -> str:
        """Why people mostly do that; nothing where there is no one reason."""
        ours, theirs = self.value, self.paper
        way = _OTHER
        if isinstance(ours, int | float) and isinstance(theirs, int | float):
            way = _OTHER if isinstance(ours, bool) else _LESS if ours < theirs else _MORE
        return _REASONS.get((self.key, way), "")

    def __str__(self) -> str:
        return f"{self.key} = {toml_value(self.value)}, where {self.section} has {self.says}"


def compare_with_paper(config: AnyConfig) -> tuple[Experiment, list[Departure]]:
    """Find the paper's experiment that a config is, or is nearest to, and what differs from it.

    The nearest differs in the fewest settings; of several, the first. A parser is compared with the
    paper's parsers, all else with its translation models. What is near none of them, as small
    models are, is compared with the first.
    """
    ours = _settings(config)
    compared: list[tuple[Experiment, list[Departure]]] = []
    for experiment in EXPERIMENTS:
        their_config = load_recipe(experiment.recipe, experiment.overrides)
        if (their_config.task == _PARSING) != (config.task == _PARSING):
            continue
        theirs = _settings(their_config)
        departures = [
            Departure(key=key, value=ours[key], paper=theirs[key], section=_section(key, config))
            for key in _SECTIONS
            if key in ours and key in theirs and ours[key] != theirs[key]
        ]
        compared.append((experiment, departures))
    nearest = min(compared, key=lambda pair: len(pair[1]))
    return nearest if len(nearest[1]) <= _NEAR else compared[0]


def _section(key: str, config: AnyConfig) -> str:
    sections = {**_SECTIONS, **_PARSING_SECTIONS} if config.task == _PARSING else _SECTIONS
    return sections[key]


def _settings(config: AnyConfig) -> dict[str, Any]:
    """List the settings that the paper fixes and the task has, by key."""
    settings = _ABSENT | {
        f"{section}.{key}": value
        for section, table in config.to_dict().items()
        if isinstance(table, dict)
        for key, value in table.items()
    }
    if config.row.assembly != "classifier":
        settings["model.pooling"] = _ABSENT["model.pooling"]
    # Many small batches accumulated are the paper's one large batch.
    train = config.train
    settings["train.batch_tokens × accumulate"] = train.batch_tokens * train.accumulate
    settings["task"] = config.task
    settings["data.input"] = config.row.input
    if settings.get("model.num_decoder_layers") == settings["model.num_layers"]:
        settings["model.num_decoder_layers"] = 0  # As in the paper, whatever the number.
    is_open: tuple[str, ...] = ()
    if config.task == _PARSING:
        is_open = _PARSING_OPEN
        if config.train.schedule == "inverse-sqrt":  # The paper's, times a factor of its own.
            settings["train.schedule"] = "paper"
    return {key: settings[key] for key in _SECTIONS if key in settings and key not in is_open}


def describe_size(config: AnyConfig) -> str:
    """Say how many parameters a config has and, for a row of Table 3, how many are printed."""
    row = config.row
    count = config.model.count_parameters(row.vocab(config), row.assembly) / 1e6
    experiment, departures = compare_with_paper(config)
    text = f"{count:.1f} million parameters"
    if departures or not experiment.recipe.startswith("table3-"):
        return text
    printed = "no count" if experiment.parameters is None else f"{experiment.parameters}"
    return f"{text}; {experiment.title}, for which the paper prints {printed}"


def describe_departures(config: AnyConfig) -> str:
    """Say which experiment of the paper a config is or starts from, and every departure from it."""
    experiment, departures = compare_with_paper(config)
    if not departures:
        lines = [f"No departure from the paper: this is {experiment.title}."]
    else:
        count = "1 departure" if len(departures) == 1 else f"{len(departures)} departures"
        lines = [f"{count} from the paper, compared with {experiment.title}:"]
        lines += [f"  {departure}" for departure in departures]
    if not departures and experiment.perplexity is not None:
        lines.append(
            f"The paper reports perplexity {experiment.perplexity:.2f} and "
            f"BLEU {experiment.bleu:.1f} on newstest2013."
        )
    if not departures and experiment.f1 is not None:
        lines.append(f"The paper reports F1 {experiment.f1:.1f} on section 23 of the WSJ.")
    return "\n".join(lines)
