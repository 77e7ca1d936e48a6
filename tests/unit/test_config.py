import dataclasses
import tomllib
from pathlib import Path

import pytest
import torch

from headwise.config import (
    TASKS,
    Config,
    DecodeConfig,
    ModelConfig,
    TrainConfig,
    Vocab,
    all_keys,
)
from headwise.errors import ConfigError
from headwise.model import Transformer
from headwise.recipes import load_recipe
from tests.conftest import model_config


def test_an_empty_recipe_is_the_papers_base_model() -> None:
    model, train, decode = Config().model, Config().train, Config().decode
    assert (model.d_model, model.d_ff, model.num_layers, model.num_heads) == (512, 2048, 6, 8)
    assert (model.d_k, model.d_v, model.dropout, model.norm_order) == (64, 64, 0.1, "post")
    assert (model.positions, model.tying) == ("sinusoidal", "three-way")
    assert (train.adam_beta1, train.adam_beta2, train.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (train.warmup_steps, train.max_steps, train.label_smoothing) == (4000, 100_000, 0.1)
    assert (train.batch_tokens, train.accumulate, train.average_last) == (25_000, 1, 5)
    assert (decode.beam, decode.alpha, decode.max_extra_tokens) == (4, 0.6, 50)
    assert Config().data.vocab_size == 37_000
    assert load_recipe("base") == Config()


def test_head_widths_follow_d_model_unless_given() -> None:
    assert ModelConfig(num_heads=4).d_k == 128
    assert (ModelConfig(d_k=16).d_k, ModelConfig(d_k=16).d_v) == (16, 64)
    with pytest.raises(ConfigError, match="num_heads = 7 must be a divisor of model.d_model = 512"):
        ModelConfig(num_heads=7)
    assert ModelConfig(num_heads=7, d_k=3, d_v=5).num_heads == 7


def test_the_decoder_has_as_many_layers_as_the_encoder_unless_given() -> None:
    assert ModelConfig(num_layers=4).num_decoder_layers == 4
    assert ModelConfig(num_layers=4, num_decoder_layers=1).num_decoder_layers == 1
    with pytest.raises(ConfigError, match=r"num_decoder_layers = -1 must be a number, 0 or more"):
        ModelConfig(num_decoder_layers=-1)


def test_a_language_model_has_no_other_layers_for_its_decoder() -> None:
    with pytest.raises(
        ConfigError,
        match=r"num_decoder_layers = 2 must be model\.num_layers = 6 with task = 'language-model'",
    ):
        Config.from_dict({"task": "language-model", "model": {"num_decoder_layers": 2}})


def test_rotary_positions_need_an_even_width_of_heads() -> None:
    with pytest.raises(ConfigError, match=r"d_k = 7 must be even with model\.positions = 'rotary'"):
        ModelConfig(positions="rotary", d_k=7)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("model.d_model", 511, "model.d_model = 511 must be even"),
        ("model.num_heads", 0, "model.num_heads = 0 must be at least 1"),
        ("model.num_layers", -1, "at least 1"),
        ("model.dropout", -0.1, "model.dropout = -0.1 must be at least 0 and below 1"),
        ("model.dropout", 1.0, "below 1"),
        ("model.dropout", float("nan"), "below 1"),
        ("model.d_model", "512", "model.d_model = '512' must be a whole number"),
        ("model.d_model", 512.0, "must be a whole number"),
        ("model.d_model", True, "must be a whole number"),
        ("model.attention_bias", 1, "must be true or false"),
        ("model.norm_order", "Pre", "must be one of 'post', 'pre'"),
        ("model.d_k", -1, "0 or more"),
        ("train.label_smoothing", 1, "below 1"),
        ("train.schedule", "cosine", "train.peak_rate = 0.0 must be above 0 with"),
        ("train.peak_rate", 0.1, "must be 0 with train.schedule = 'paper'"),
        ("train.peak_rate", float("inf"), "must be a number, 0 or more"),
        ("train.adam_epsilon", 0, "above 0"),
        ("train.seed", 10**400, "train.seed is too large a number"),
        ("train.max_minutes", 2**63, "train.max_minutes is too large a number"),
        ("train.save_every_minutes", 0, "or nothing would ever be saved"),
        ("train.max_steps", 0, "at least 1"),
        ("decode.beam", 0, "at least 1"),
        ("decode.alpha", -1.0, "0 or more"),
        ("decode.alpha", 10.1, "at most 10"),
        ("data.vocab_size", 4, "at least 5"),
    ],
)
def test_a_wrong_value_is_one_clear_error(key: str, value: object, complaint: str) -> None:
    section, name = key.split(".")
    with pytest.raises(ConfigError, match=complaint) as caught:
        Config.from_dict({section: {name: value}})
    assert str(caught.value).startswith(f"{section}.")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[model]\nd_modle = 1", r"r\.toml: unknown key 'model.d_modle': .*'model.d_model'"),
        ("[modle]\nd_model = 1", r"r\.toml: unknown key 'modle': did you mean 'model'"),
        ("dropout = 0.1", r"r\.toml: unknown key 'dropout': did you mean 'model.dropout'"),
        ("model = 3", r"r\.toml: model = 3 must be a table: write \[model\]"),
        ("[model]\nd_model = 'x'", r"r\.toml: model.d_model = 'x' must be a whole number"),
        ("[model]\nd_k = ,", r"r\.toml: not valid TOML: .*line 2"),
        ("x = " + "[" * 5000, r"r\.toml: not valid TOML"),
        ("x = " + "9" * 5000, r"r\.toml: not valid TOML"),
        ("task = 'chess'", r"r\.toml: task = 'chess' is unknown: there is 'translation'"),
        ("format_version = 2", r"r\.toml: format_version = 2 is newer than the 1 .*: upgrade"),
        ("format_version = 'x'", r"r\.toml: format_version = 'x' must be a whole"),
    ],
)
def test_a_wrong_recipe_names_file_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_recipe(path)


def test_a_recipe_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml: cannot read this recipe: No such file"):
        load_recipe(tmp_path / "missing.toml")
    with pytest.raises(
        ConfigError, match="no recipe and no file 'table3-a-h5': did you mean table3-a-h"
    ):
        load_recipe("table3-a-h5")
    with pytest.raises(ConfigError, match="cannot read this recipe: Is a directory"):
        load_recipe(tmp_path)
    with pytest.raises(ConfigError, match="cannot read this recipe: File name too long"):
        load_recipe("a" * 5000)
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf[model]\nd_k = 16\n")
    assert load_recipe(tmp_path / "bom.toml").model.d_k == 16
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match="not UTF-8 text: .* at byte 5"):
        load_recipe(tmp_path / "latin.toml")


def test_overrides_are_laid_over_the_recipe_in_order() -> None:
    config = load_recipe("big", ["model.num_heads=8", "model.num_heads=4", "train.seed=5"])
    assert (config.model.num_heads, config.model.d_k, config.train.seed) == (4, 256, 5)
    assert config.train.max_steps == 300_000
    assert load_recipe("base", ["model.norm_order=pre"]).model.norm_order == "pre"
    assert load_recipe("base", ['model.norm_order="pre"']).model.norm_order == "pre"
    assert load_recipe("base", ["model.dropout=0"]).model.dropout == 0.0


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("model.d_model", "write it as section.key=value"),
        ("model.dmodel=3", "unknown key 'model.dmodel': did you mean 'model.d_model'"),
        ("format_version=1", "unknown key 'format_version': `headwise config` prints every key"),
        ("dropout=1", "unknown key 'dropout': did you mean 'model.dropout'"),
        ("model.d_model=512\nmodel.d_ff=3", "one value at a time"),
        ("train.seed=" + "9" * 5000, "--set train.seed: Exceeds the limit"),
        ("train.seed=" + "[" * 5000, "--set train.seed: "),
        ("model.d_model=x", "model.d_model = 'x' must be a whole number"),
    ],
)
def test_a_wrong_override_is_one_clear_error(override: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_recipe("base", [override])


def test_the_resolved_recipe_builds_the_same_config() -> None:
    config = Config(
        model=ModelConfig(d_k=16, norm_order="pre"),
        train=TrainConfig(schedule="cosine", peak_rate=2e-3),
        decode=DecodeConfig(penalty="power"),
    )
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


def test_every_field_says_what_it_is() -> None:
    source = Path(__file__).parents[2] / "src/headwise/config"
    text = "".join(path.read_text("utf-8") for path in sorted(source.glob("*.py")))
    for key in {key for task in TASKS for key in all_keys(task)}:
        name = key.split(".")[-1]
        declared = text.index(f"\n    {name}: ")
        following = text[declared + 1 :].split("\n", 2)[1]
        assert name == "task" or following.startswith('    """'), f"{key} has no docstring"


def test_configs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        Config().model.d_model = 3  # type: ignore[misc]


@pytest.mark.parametrize("tying", ["three-way", "two-way", "untied"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("attention_bias", [True, False])
@pytest.mark.parametrize("num_decoder_layers", [0, 1, 3])
def test_the_parameter_count_is_the_models(
    tying: str, norm_order: str, positions: str, attention_bias: bool, num_decoder_layers: int
) -> None:
    config = model_config(
        tying=tying,
        norm_order=norm_order,
        positions=positions,
        attention_bias=attention_bias,
        num_decoder_layers=num_decoder_layers,
    )
    vocab = Vocab(source_size=23, target_size=23 if tying == "three-way" else 29)
    with torch.device("meta"):
        model = Transformer(config, vocab)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert config.count_parameters(vocab) == counted


def test_a_vocabulary_holds_more_than_the_special_ids() -> None:
    with pytest.raises(ConfigError, match="vocab.source_size = 4 must be at least 5"):
        Vocab(source_size=4, target_size=9)
    with pytest.raises(ConfigError, match="vocab.source_size = 9.5 must be a whole number"):
        Vocab.shared(9.5)  # type: ignore[arg-type]


def test_python_is_checked_as_toml_is() -> None:
    with pytest.raises(ConfigError, match="model = 3 must be a ModelConfig"):
        Config(model=3)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="model.d_model = '512' must be a whole number"):
        ModelConfig(d_model="512")  # type: ignore[arg-type]


def test_one_matrix_needs_one_vocabulary() -> None:
    with pytest.raises(ConfigError, match="'three-way' needs data.joint = true"):
        load_recipe("base", ["data.joint=false"])
    assert not load_recipe("base", ["data.joint=false", "model.tying=two-way"]).data.joint


def test_an_override_may_complete_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[train]\nschedule = 'cosine'\n")
    with pytest.raises(ConfigError, match=r"r\.toml: train.peak_rate = 0.0 must be above 0"):
        load_recipe(path)
    assert load_recipe(path, ["train.peak_rate=0.001"]).train.peak_rate == 0.001


@pytest.mark.parametrize(
    ("recipe", "override", "complaint"),
    [
        ("read-tiny", "model.tying=three-way", "'three-way' must be 'two-way' or 'untied'"),
        ("read-tiny", "model.positions=learned model.max_positions=70", "of an example = 71"),
        ("read-tiny", "train.batch_tokens=70", "batch_tokens = 70 must be at least .* = 71"),
        ("listen-tiny", "train.bleu_pairs=3", "bleu_pairs must be 0: a transcriber does not"),
        ("read-tiny", "data.input=text", "data.input = 'text' must be one of 'images'"),
        ("read-tiny", "data.input=video", "data.input = 'video' must be 'images', 'audio' with"),
        ("read-tiny", "data.longest_width=282", "must be a multiple of data.patch = 4"),
        ("read-tiny", "data.height=100000000", "must be of a smaller image"),
        ("read-tiny", "data.shift=28", "data.shift = 28 must be at most 27"),
        ("read-tiny", "data.targets=words", "data.targets = 'words' must be one of 'characters'"),
        ("listen-tiny", "data.cer_examples=-1", "cer_examples = -1 must be a number, 0 or more"),
        ("listen-tiny", "data.vocab_size=4", "data.vocab_size = 4 must be at least 5"),
        ("listen-tiny", "model.aligned_input=true", "aligned_input = true must be false with task"),
    ],
)  # fmt: skip
def test_a_transcriber_that_cannot_be_is_a_clear_error(
    recipe: str, override: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_recipe(recipe, override.split(" "))


def test_transcription_is_of_images_unless_it_says_otherwise() -> None:
    config = Config.from_dict({"task": "transcription", "model": {"tying": "two-way"}})
    assert config.row.input == "images" == load_recipe("read-tiny").row.input
    assert load_recipe("listen-tiny").row.input == "audio"
