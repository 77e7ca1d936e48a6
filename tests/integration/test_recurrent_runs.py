"""Recurrent models through everything that a Transformer goes through."""

from pathlib import Path

import pytest

from headwise import Translator
from headwise.config import Config, RecurrentConfig
from headwise.errors import ConfigError, RequestError
from headwise.inspect.attention import attention_record
from headwise.interop.ctranslate2.export import export
from headwise.paper import describe_departures
from headwise.recipes import load_recipe
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation.trained import load_model
from headwise.workflows.evaluate import evaluate
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.servers import running, served
from tests.small_runs import digests, write_text

SETTINGS = (
    "model.kind=recurrent",
    "data.vocab_size=300",
    "model.num_layers=1",
    "train.warmup_steps=10",
    "train.log_every_steps=3",
)


def recurrent_config(*changes: str) -> Config:
    return load_recipe("base", [*SETTINGS, *changes])


def trained(directory: Path, attention: str) -> Path:
    """Train a run that translates words to themselves, backwards."""
    config = recurrent_config(
        f"model.attention={attention}",
        "model.d_model=48",
        "model.dropout=0",
        "train.label_smoothing=0",
        "train.schedule=linear",
        "train.peak_rate=1e-2",
        "train.batch_tokens=300",
        "train.max_steps=250",
        "train.save_every_steps=250",
        "train.average_last=1",
    )
    train(config, directory / "run", text=write_text(directory, pairs=600))
    return directory / "run"


@pytest.fixture(scope="module")
def additive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("additive"), "additive")


@pytest.fixture(scope="module")
def sutskever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("none"), "none")


def test_words_are_learned_backwards(additive: Path, sutskever: Path) -> None:
    """Attention finds each word; a single state keeps some of them."""
    files = write_text(additive.parent, pairs=40, seed=2)
    source, target = (path.read_text().splitlines() for path in (*files.sources, *files.targets))
    for run, most in ((additive, 1.6), (sutskever, 60.0)):
        (found,) = evaluate([run], source, [target]).runs
        assert found.perplexity is not None
        assert found.perplexity < most


def test_attention_is_shown_where_there_is_any(additive: Path, sutskever: Path) -> None:
    translator = Translator.load(additive)
    assert translator.can_align
    (found,) = translator.translate(["bana dora kuti"])
    assert len(translator.alignment(found)) == len(found.candidates[0].ids)
    record = attention_record(translator, "bana dora kuti")
    assert (len(record.cross), len(record.encoder), len(record.decoder)) == (1, 0, 0)
    ((weights,),) = record.cross
    assert len(weights) == len(record.output_tokens)
    assert len(weights[0]) == len(record.source_tokens)
    assert record.kinds == ("cross",)
    without = Translator.load(sutskever)
    assert not without.can_align
    with pytest.raises(RequestError, match=r"the model has none \(model.attention = 'none'\)"):
        without.trace("bana")


@pytest.mark.parametrize("attention", ["additive", "none"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_run_is_resumed_to_the_bit(cell: str, attention: str, tmp_path: Path) -> None:
    text = write_text(tmp_path)
    settings = (f"model.cell={cell}", f"model.attention={attention}", "model.d_model=8")
    steps = ("train.save_every_steps=4", "train.batch_tokens=150", "model.dropout=0.2")
    train(recurrent_config(*settings, *steps, "train.max_steps=12"), tmp_path / "whole", text=text)
    train(recurrent_config(*settings, *steps, "train.max_steps=4"), tmp_path / "parts", text=text)
    config = tmp_path / "parts" / "config.toml"
    config.write_text(config.read_text().replace("max_steps = 4", "max_steps = 12"))
    train(recurrent_config(*settings, *steps, "train.max_steps=12"), tmp_path / "parts", text=text)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_it_is_served(additive: Path, sutskever: Path) -> None:
    models = [served(additive, name="with"), served(sutskever, name="without")]
    with running(models) as server:
        for model in models:
            (found,) = server.translate("bana dora", model=model.name)
            assert found["text"] == model.translator.translate(["bana dora"])[0].text
        status, answer, _ = server.ask("POST", "/v1/attention", {"q": "bana", "model": "with"})
        assert (status, len(answer["records"])) == (200, 1)
        status, answer, _ = server.ask("POST", "/v1/attention", {"q": "bana", "model": "without"})
        assert status == 400
        assert "a model that has attention" in answer["error"]


def test_reports_and_departures_say_what_it_is(
    additive: Path, sutskever: Path, headwise: Headwise
) -> None:
    for run in (additive, sutskever):
        code, _, errors = headwise("report", str(run))
        assert code == 0, errors
        assert "A recurrent model of" in (run / "report.html").read_text("utf-8")
    assert 'model.kind = "recurrent", where §3 has a Transformer' in describe_departures(
        RunDirectory(additive).config()
    )


def test_ctranslate2_is_refused_with_the_reason(additive: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot express model\.kind = 'recurrent'"):
        export(RunDirectory(additive))


def test_a_config_is_its_own_fixed_point() -> None:
    config = recurrent_config("model.cell=gru")
    assert isinstance(config.model, RecurrentConfig)
    assert Config.from_dict(config.to_dict()) == config
    assert isinstance(load_recipe("base", ["model.cell=gru", "model.kind=recurrent"]), Config)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (("model.window=64",), "model.window is a setting of model.kind = 'transformer'"),
        (("model.attention=window",), "model.attention = 'window' must be one of 'additive'"),
        (("model.kind=lstm",), "model.kind = 'lstm' must be one of 'transformer', 'recurrent'"),
        (
            ("model.kind=transformer", "model.cell=gru"),
            "model.cell is a setting of model.kind = 'recurrent', not of 'transformer'",
        ),
    ],
)
def test_wrong_combinations_name_both_keys(changes: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        recurrent_config(*changes)


def test_other_tasks_refuse_it() -> None:
    with pytest.raises(ConfigError, match="model.kind = 'recurrent' must be 'transformer' with"):
        load_recipe("lm-tiny", ["model.kind=recurrent"])


def test_its_weights_are_loaded_as_they_were_saved(additive: Path) -> None:
    model = load_model(RunDirectory(additive)).model
    assert sum(p.numel() for p in model.parameters()) == RunDirectory(
        additive
    ).config().model.count_parameters(model.vocab)
