import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import ctranslate2
import pytest
import torch

from headwise.config import Vocab
from headwise.data import prepare
from headwise.decoding import SearchSettings
from headwise.errors import CheckpointError, ConfigError, RequestError, UnsafeFileError
from headwise.interop.ctranslate2 import export as export_module
from headwise.interop.ctranslate2.engine import CTranslate2Engine
from headwise.interop.ctranslate2.export import export, export_directory
from headwise.interop.ctranslate2.files import Quantization
from headwise.interop.ctranslate2.spec import (
    SINUSOIDS,
    largest_file,
    make_spec,
    require_expressible,
)
from headwise.model import Transformer
from headwise.runs.checkpoint import write_checkpoint
from headwise.runs.directory import RunDirectory
from headwise.runs.state import TrainingState
from headwise.runs.weights import model_weights
from headwise.tasks.translation.torch_engine import TorchEngine
from headwise.tasks.translation.trained import load_model
from headwise.workflows.runs import Inputs, open_or_create
from tests.conftest import Headwise
from tests.small_runs import small_config, write_text

SEPARATE = ("data.joint=false", "data.vocab_size=290")

MakeRun = Callable[..., RunDirectory]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """Return a function that makes a run whose weights are drawn, not learned."""
    text = write_text(tmp_path_factory.mktemp("text"))
    prepared = tmp_path_factory.mktemp("prepared")
    prepare(text, small_config(), prepared / "joint", processes=1)
    prepare(text, small_config(*SEPARATE, "model.tying=untied"), prepared / "two", processes=1)

    def run(*changes: str) -> RunDirectory:
        config = small_config("model.num_layers=2", *changes)
        path = tmp_path_factory.mktemp("runs") / "run"
        data = prepared / ("joint" if config.data.joint else "two")
        directory = open_or_create(path, config, Inputs(data=data)).directory
        source, target = directory.subwords()
        torch.manual_seed(5)
        model = Transformer(config.model, Vocab(source_size=len(source), target_size=len(target)))
        scramble(model)
        weights = model_weights(model)
        write_checkpoint(directory.step_directory(1), weights, {}, TrainingState(step=1))
        return directory

    return run


def greedy(model: Transformer, sources: list[list[int]], max_extra_tokens: int) -> list[list[int]]:
    settings = SearchSettings(beam=1, stop="count")
    found = TorchEngine(model).translate(sources, settings, max_extra_tokens)
    return [list(best.ids) for best, *_ in found]


@torch.no_grad()
def scramble(model: Transformer) -> None:
    """Make outputs that differ from each other: those of first weights repeat one token."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:  # Biases and norms, whose first values would hide a mistake.
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
        elif "embedding" not in name and "output" not in name:
            parameter.mul_(2.5)
    model.output.weight[Vocab.eos].mul_(2)


@pytest.fixture(scope="module")
def run(make: MakeRun) -> RunDirectory:
    # Of these weights, outputs of many lengths come.
    directory = make("model.tying=untied", "model.norm_order=pre")
    export(directory)
    return directory


@pytest.fixture(scope="module")
def model(run: RunDirectory) -> Transformer:
    return require_expressible(load_model(run).model)


@pytest.fixture(scope="module")
def engine(run: RunDirectory) -> CTranslate2Engine:
    return CTranslate2Engine.load(export_directory(run, "float32"), threads=2)


def draw(count: int, size: int, longest: int = 17, seed: int = 1) -> list[list[int]]:
    generator = random.Random(seed)
    return [
        [generator.randrange(4, size) for _ in range(generator.randint(0, longest))]
        for _ in range(count)
    ]


@torch.no_grad()
def log_probs(model: Transformer, source: Sequence[int], target: Sequence[int]) -> list[float]:
    """The log-probabilities of a target's tokens and of its end, by teacher forcing."""
    src, tgt_in = torch.tensor([[*source, Vocab.eos]]), torch.tensor([[Vocab.bos, *target]])
    values = model(src, tgt_in).log_softmax(2)[0]
    return [float(values[place, token]) for place, token in enumerate([*target, Vocab.eos])]


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("model.norm_order=pre",),
        ("model.positions=learned", "model.max_positions=80"),
        ("model.attention_bias=false", "model.num_heads=3", "model.d_k=7", "model.d_v=7"),
        ("model.activation=gelu", "model.norm_epsilon=1e-2"),
        ("model.num_decoder_layers=1",),
        ("model.activation=gelu_tanh", "model.scale_embeddings=false"),
        (*SEPARATE, "model.tying=two-way"),
        (*SEPARATE, "model.tying=untied", "model.norm_order=pre"),
    ],
    ids=[
        "paper",
        "pre-norm",
        "learned",
        "narrow heads, no biases",
        "GELU, epsilon",
        "decoder of one layer",
        "tanh GELU, unscaled",
        "two-way",
        "untied pre-norm",
    ],
)
def test_a_float32_export_computes_what_the_model_computes(
    make: MakeRun, changes: tuple[str, ...]
) -> None:
    run = make(*changes)
    trained = load_model(run)
    sources = draw(100, len(trained.source))
    targets = draw(100, len(trained.target), seed=2)
    report = export(run, pairs=list(zip(sources, targets, strict=True)))
    found = report.verification
    assert found.pairs == 100
    assert found.largest_difference < 1e-4
    assert found.equal_outputs >= 0.99
    model = require_expressible(trained.model)
    outputs = [tuple(output) for output in greedy(model, sources, 50)]
    assert len(set(outputs)) > 30  # Or equality would prove little.
    # And the figures themselves are right, whatever the export's own code compares.
    engine = CTranslate2Engine.load(report.directory, threads=1)
    scores = engine.score(sources[:9], targets[:9])
    for source, target, score in zip(sources, targets, scores, strict=False):
        assert score == pytest.approx(log_probs(model, source, target), abs=1e-4)
        assert len(score) == len(target) + 1


def test_the_log_probabilities_of_a_beam_are_those_of_teacher_forcing(
    engine: CTranslate2Engine, model: Transformer
) -> None:
    sources = draw(40, model.vocab.source_size)
    found = engine.translate(sources, beam=4, nbest=4, alpha=0.6)
    ended = 0
    for source, hypotheses in zip(sources, found, strict=True):
        assert len({h.ids for h in hypotheses}) == 4
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses:
            expected = sum(log_probs(model, source, h.ids))
            assert h.log_prob == pytest.approx(expected, abs=1e-4)
            assert h.score == pytest.approx(h.log_prob / ((6 + len(h.ids)) / 6) ** 0.6)
            assert len(h.ids) <= len(source) + 50
            ended += len(h.ids) < len(source) + 50
    assert 10 < ended < 160  # Some end by themselves, and some are cut.


def test_penalties_and_beams_do_what_they_say(
    engine: CTranslate2Engine, model: Transformer
) -> None:
    sources = draw(30, model.vocab.source_size, seed=4)
    power = engine.translate(sources, alpha=1.0, penalty="power", nbest=2)
    for hypotheses in power:
        for h in hypotheses:
            assert h.score == pytest.approx(h.log_prob / (len(h.ids) + 1))
    plain = engine.translate(sources, alpha=0.0)
    assert all(h.score == h.log_prob for (h,) in plain)
    # The best by another penalty is not always the best by ours: that is what ranking anew is for.
    gnmt = engine.translate(sources, alpha=1.0, nbest=4)
    by_power = [max(hs, key=lambda h: h.log_prob / (len(h.ids) + 1)) for hs in gnmt]
    assert any(best != hs[0] for best, hs in zip(by_power, gnmt, strict=True))
    asked_for_one = engine.translate(sources, alpha=1.0)
    assert [hs[0].ids for hs in asked_for_one] == [hs[0].ids for hs in gnmt]
    one = engine.translate(sources, beam=1)
    expected = zip(one, greedy(model, sources, 50), strict=True)
    # One may be a tie that another CPU's rounding decides otherwise.
    assert sum(list(hs[0].ids) == ids for hs, ids in expected) >= 29
    wide = engine.translate(sources, beam=8, alpha=0.0)
    assert sum(h.log_prob for (h,) in wide) > sum(hs[0].log_prob for hs in one)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_each_sentence_has_its_own_limit_and_place(
    engine: CTranslate2Engine, model: Transformer, alpha: float
) -> None:
    sources = draw(60, model.vocab.source_size, seed=6)
    together = engine.translate(sources, max_extra_tokens=3, alpha=alpha)
    longest = 0
    for source, (best,) in zip(sources, together, strict=True):
        (alone,) = engine.translate([source], max_extra_tokens=3, alpha=alpha)
        assert alone[0].ids == best.ids
        assert alone[0].log_prob == pytest.approx(best.log_prob, abs=1e-4)
        assert len(best.ids) <= len(source) + 3
        longest += len(best.ids) == len(source) + 3
        assert best.log_prob == pytest.approx(sum(log_probs(model, source, best.ids)), abs=1e-4)
    assert longest > 5


def test_nothing_and_empty_sentences(engine: CTranslate2Engine, model: Transformer) -> None:
    assert engine.translate([]) == []
    assert engine.score([], []) == []
    (empty,), (other,) = engine.translate([[], [9, 8]], beam=1)
    assert [list(empty.ids), list(other.ids)] == greedy(model, [[], [9, 8]], 50)
    ((none,),) = engine.translate([[]], max_extra_tokens=0)
    assert none.ids == ()
    assert none.log_prob == pytest.approx(log_probs(model, [], [])[0], abs=1e-4)


def test_long_sentences_are_whole_or_refused(engine: CTranslate2Engine, model: Transformer) -> None:
    long = [random.Random(1).randrange(4, model.vocab.source_size) for _ in range(1500)]
    assert engine.score([long], [long])[0] == pytest.approx(log_probs(model, long, long), abs=1e-3)
    # A cut at 1,024 would not see the change at the end.
    changed = [*long[:-1], 4 if long[-1] != 4 else 5]
    one, other = engine.translate([long, changed], beam=1, max_extra_tokens=0)
    assert one[0].log_prob != other[0].log_prob
    with pytest.raises(RequestError, match=r"sources\[1\] has 8,192 tokens, and this export has"):
        engine.translate([[5], [5] * SINUSOIDS])


def test_learned_positions_limit_the_output_too(make: MakeRun) -> None:
    run = make("model.positions=learned", "model.max_positions=20")
    report = export(run)
    assert report.verification.equal_outputs >= 0.99
    engine = CTranslate2Engine.load(report.directory, threads=1)
    found = engine.translate(draw(30, 290, longest=19), nbest=4)
    assert max(len(h.ids) for hypotheses in found for h in hypotheses) == 19
    with pytest.raises(RequestError, match="20 tokens, and this export has positions for 19"):
        engine.translate([[5] * 20])


def test_an_output_has_its_least_length_and_no_padding(make: MakeRun) -> None:
    run = make("model.tying=untied", "model.norm_order=pre")
    trained = load_model(run)
    with torch.no_grad():  # A model that likes nothing better than padding.
        trained.model.output.weight[Vocab.pad].mul_(4)
    weights = model_weights(trained.model)
    write_checkpoint(run.step_directory(2), weights, {}, TrainingState(step=2))
    report = export(run, "2")
    assert report.verification.equal_outputs >= 0.99
    engine = CTranslate2Engine.load(report.directory, threads=1)
    sources = draw(30, 300)
    plain = engine.translate(sources, nbest=4)
    assert not any({Vocab.pad, Vocab.bos} & set(h.ids) for hs in plain for h in hs)
    long = engine.translate(sources, min_length=12, max_extra_tokens=12)
    assert min(len(h.ids) for (h,) in long) >= 12
    assert min(len(hs[0].ids) for hs in plain) < 12
    for source, found in zip(sources * 2, [*plain, *long], strict=True):
        expected = sum(log_probs(require_expressible(trained.model), source, found[0].ids))
        assert found[0].log_prob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("quantization", "bound"), [("int16", 0.2), ("int8", 2.0)])
def test_a_quantised_export_is_near(
    make: MakeRun, quantization: Quantization, bound: float
) -> None:
    if quantization not in ctranslate2.get_supported_compute_types("cpu"):
        bound = 2.0  # On such a processor CTranslate2 computes in int8 instead, and says so.
    run = make("model.d_model=64", "model.d_ff=96")
    exact = export(run)
    report = export(run, None, quantization)
    assert exact.verification.largest_difference < report.verification.largest_difference < bound
    sizes = [(r.directory / "model.bin").stat().st_size for r in (exact, report)]
    positions = SINUSOIDS * 64 * 4
    assert sizes[1] - positions < 0.7 * (sizes[0] - positions)
    assert sorted(path.name for path in (run.path / "exports").iterdir()) == [
        "ctranslate2-float32",
        f"ctranslate2-{quantization}",
    ]


def test_an_export_has_everything_beside_it(run: RunDirectory) -> None:
    directory = export_directory(run, "float32")
    assert {path.name for path in directory.iterdir()} == {
        "config.json",
        "manifest.json",
        "model.bin",
        "source_vocabulary.json",
        "target_vocabulary.json",
        "tokenizer",
        "verification.json",
    }
    tokens = json.loads((directory / "target_vocabulary.json").read_text("utf-8"))
    _, target = run.subwords()
    assert tokens == target.tokens(list(range(len(target))))
    verification = json.loads((directory / "verification.json").read_text("utf-8"))
    assert verification["inputs"] == "validation text"
    assert verification["largest_difference"] < 1e-4
    manifest = json.loads((directory / "manifest.json").read_text("utf-8"))
    assert manifest["weights"] == "checkpoints/step-00000001"
    assert str(run.path) not in json.dumps(manifest)


def test_without_its_text_a_run_is_verified_on_random_ids(make: MakeRun) -> None:
    run = make()
    shutil.rmtree(run.path / "data")
    # Text elsewhere is not read, although it is there: a stranger may have written origin.json.
    assert Path(run.origin()["data"]).is_dir()
    found = export(run).verification
    assert (found.pairs, found.inputs) == (100, "random ids")
    assert found.largest_difference < 1e-4


def test_what_cannot_be_expressed_is_refused(make: MakeRun) -> None:
    run = make("model.d_k=4")
    with pytest.raises(ConfigError, match="cannot express model.d_k = 4 with model.d_v = 8: its"):
        export(run)
    assert not (run.path / "exports").exists()
    with pytest.raises(ConfigError, match="cannot express model.positions = 'rotary' here: it has"):
        export(make("model.positions='rotary'"))
    with pytest.raises(ConfigError, match="no quantization 'int4': it is one of float32, int8"):
        export(run, None, "int4")  # type: ignore[arg-type]


def test_an_export_that_computes_something_else_is_not_written(
    make: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make()
    kept = export(run).directory / "model.bin"
    before = kept.read_bytes()

    def wrong(model: Transformer, source: list[str], target: list[str]) -> object:
        spec = make_spec(model, source, target)
        spec.decoder.layer[1].attention.queries_scale *= 1.1
        return spec

    monkeypatch.setattr(export_module, "make_spec", wrong)
    with pytest.raises(CheckpointError, match="does not compute what the model computes: log-prob"):
        export(run)
    assert kept.read_bytes() == before
    assert [path.name for path in (run.path / "exports").iterdir()] == ["ctranslate2-float32"]


def test_a_damaged_export_is_named(make: MakeRun) -> None:
    directory = export(make()).directory
    model = directory / "model.bin"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    with pytest.raises(CheckpointError, match="model.bin: damaged: not as it was exported"):
        CTranslate2Engine.load(directory)
    model.unlink()
    with pytest.raises(CheckpointError, match="model.bin: cannot be read: No such file"):
        CTranslate2Engine.load(directory)
    manifest = directory / "manifest.json"
    body = json.loads(manifest.read_text("utf-8"))
    for damaged, complaint in (
        (json.dumps(body | {"format_version": 2}), "format_version is 2, and this Headwise reads"),
        (json.dumps({"sha256": 3}), "manifest.json: damaged: not a manifest"),
        ("{", "manifest.json: damaged: not JSON"),
    ):
        manifest.write_text(damaged)
        with pytest.raises(CheckpointError, match=complaint):
            CTranslate2Engine.load(directory)
    manifest.unlink()
    with pytest.raises(CheckpointError, match="is not an exported model: `headwise export RUN"):
        CTranslate2Engine.load(directory)


def test_wrong_requests_are_refused(engine: CTranslate2Engine, run: RunDirectory) -> None:
    with pytest.raises(RequestError, match="nbest = 5 must be at most beam = 4"):
        engine.translate([[5]], nbest=5)
    with pytest.raises(RequestError, match="beam = 0 must be 1 or more"):
        engine.translate([[5]], beam=0)
    with pytest.raises(RequestError, match="alpha = nan must be 0 or more"):
        engine.translate([[5]], alpha=math.nan)
    with pytest.raises(RequestError, match=r"sources\[1\] has ids outside the vocabulary of 320"):
        engine.translate([[5], [320]])
    with pytest.raises(RequestError, match=r"targets\[0\] has ids outside the vocabulary"):
        engine.score([[5]], [[-1]])
    with pytest.raises(RequestError, match="3 workers need as many threads, not 2"):
        CTranslate2Engine.load(export_directory(run, "float32"), threads=2, workers=3)


def test_without_the_library_the_way_to_install_it_is_named(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ConfigError, match=r"pip install 'headwise\[ctranslate2\]'"):
        export(run)
    with pytest.raises(ConfigError, match=r"pip install 'headwise\[ctranslate2\]'"):
        CTranslate2Engine.load(export_directory(run, "float32"))


def test_the_command_exports_and_prints_the_difference(
    run: RunDirectory, tmp_path: Path, headwise: Headwise
) -> None:
    command = [sys.executable, "-W", "error", "-m", "headwise", "export", str(run.path)]
    command += ["--to", "ctranslate2", "--quantization", "float32"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    first, second, third = result.stdout.splitlines()
    assert first.endswith("step-00000001 as float32: " + str(export_directory(run, "float32")))
    assert float(second.removeprefix("largest difference of a token's log-probability: ")) < 1e-4
    assert third.startswith("equal greedy outputs: 100.0% of ")
    assert third.endswith("(validation text)")
    for arguments, complaint in (
        ([str(tmp_path), "--to", "ctranslate2"], "is not a run directory"),
        ([str(run.path)], "Missing option '--to'"),
        ([str(run.path), "--to", "onnx"], "'onnx' is not 'ctranslate2'"),
        ([str(run.path), "--to", "ctranslate2", "--checkpoint", "7"], "has no checkpoint of step"),
    ):
        code, output, errors = headwise("export", *arguments)
        assert (code, output) == (2, "")
        assert complaint in errors
        assert errors.count("\n") == 1


def test_an_export_takes_the_runs_lock(make: MakeRun) -> None:
    run = make()
    busy = pytest.raises(CheckpointError, match="another process is writing to this run")
    with run.locked(), busy:
        export(run)
    assert not (run.path / "exports").exists()


@pytest.mark.parametrize("name", ["../model.bin", "/etc/passwd", "a/b.json", ".hidden", ""])
def test_a_manifest_names_plain_files_only(make: MakeRun, name: str) -> None:
    directory = export(make()).directory
    body = json.loads((directory / "manifest.json").read_text("utf-8"))
    body["sha256"][name] = "0" * 64
    (directory / "manifest.json").write_text(json.dumps(body))
    with pytest.raises(CheckpointError, match="is not the name of an exported file"):
        CTranslate2Engine.load(directory)


def test_what_ctranslate2_would_read_besides_is_refused(make: MakeRun) -> None:
    directory = export(make()).directory
    (directory / "vmap.txt").write_text("x")
    with pytest.raises(UnsafeFileError, match=r"'vmap\.txt' is not a part of the export"):
        CTranslate2Engine.load(directory)
    (directory / "vmap.txt").unlink()
    model = directory / "model.bin"
    model.rename(directory.parent / "elsewhere")
    model.symlink_to(directory.parent / "elsewhere")
    with pytest.raises(UnsafeFileError, match=r"model\.bin is a symlink"):
        CTranslate2Engine.load(directory)


@pytest.mark.parametrize(
    "changes", [(), ("model.positions=learned",), (*SEPARATE, "model.tying=untied")]
)
def test_no_export_is_larger_than_expected(make: MakeRun, changes: tuple[str, ...]) -> None:
    run = make(*changes)
    source, target = run.subwords()
    vocab = Vocab(source_size=len(source), target_size=len(target))
    most = largest_file(run.config().model, vocab)
    size = (export(run).directory / "model.bin").stat().st_size
    assert size <= most < 2 * size + 2**20
    with pytest.raises(UnsafeFileError, match=r"model\.bin is too large"):
        CTranslate2Engine.load(export_directory(run, "float32"), most_bytes=size - 1)
