"""Whole runs: from text to a trained run directory, stopped and gone on with in every way."""

import gzip
import hashlib
import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from torch import nn

from headwise.config import Config, Vocab
from headwise.data import ParallelFiles, TokenShards, TsvFile, prepare
from headwise.decoding import SearchSettings
from headwise.errors import CheckpointError, ConfigError, DataError, DivergenceError
from headwise.model import Transformer
from headwise.recipes import load_recipe
from headwise.runs.checkpoint import read_checkpoint, read_state, read_weights
from headwise.runs.checkpoints import average, choose
from headwise.runs.directory import RunDirectory
from headwise.runs.metrics import read_metrics
from headwise.runs.weights import load_weights
from headwise.tasks.translation.bleu import TranslationEvaluator
from headwise.tasks.translation.task import TASK
from headwise.tasks.translation.torch_engine import TorchEngine
from headwise.tasks.translation.trained import load_model
from headwise.training.distributed import World
from headwise.training.estimate import _ROUNDS, Estimate
from headwise.training.events import Event, Note, Saved, Updated, Validated
from headwise.training.step import TrainingStep
from headwise.training.task import ValidationData
from headwise.workflows.runs import training_batches
from headwise.workflows.train import train
from tests.small_runs import digest, digests, small_config, write_text

FILES_OF_A_RUN = {
    "averaged",
    "checkpoints",
    "config.toml",
    "data",
    "environment.json",
    "metrics.jsonl",
    "origin.json",
    "tokenizer",
    ".lock",
}


ESTIMATED = _ROUNDS
"""Passes through the model before the first update, to see how long it takes."""


class KilledError(Exception):
    """Raised in the middle of a run, where a kill would end it."""


def noting(next_: Callable[[Event], None], notes: list[str]) -> Callable[[Event], None]:
    """Keep what the notes say, and pass every event on."""

    def on_event(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)
        next_(event)

    return on_event


def killer(step: int) -> Callable[[Event], None]:
    def on_event(event: Event) -> None:
        if isinstance(event, Updated) and event.step == step:
            raise KilledError

    return on_event


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ParallelFiles:
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def undisturbed(text: ParallelFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(small_config("train.accumulate=2"), run, text=text)
    return run


def test_a_run_writes_the_documented_files(text: ParallelFiles, tmp_path: Path) -> None:
    events: list[Event] = []
    config = small_config()
    report = train(config, tmp_path / "run", text=text, on_event=events.append)
    assert (report.state.step, report.reason) == (12, "train.max_steps = 12")
    assert report.averaged_steps == (4, 8, 12)
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES_OF_A_RUN
    run = RunDirectory(tmp_path / "run")
    assert run.config() == config
    assert run.steps() == [4, 8, 12]
    assert [e.step for e in events if isinstance(e, Updated)] == list(range(1, 13))
    assert [e.step for e in events if isinstance(e, Saved)] == [4, 8, 12]
    lines = read_metrics(run.metrics_file)
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("train", 3),
        ("valid", 4),
        ("train", 6),
        ("valid", 8),
        ("train", 9),
        ("train", 12),
        ("valid", 12),
    ]
    assert lines[5]["loss"] < lines[0]["loss"]
    assert 0 <= lines[0]["padding"] < 0.5
    estimates = [e for e in events if isinstance(e, Estimate)]
    assert len(estimates) == 1
    assert estimates[0].updates == 12
    validated = [e for e in events if isinstance(e, Validated)]
    assert validated[-1].result.loss == read_state(run.step_directory(12)).valid_loss
    assert report.averaged is not None


def test_the_run_is_the_same_whether_or_not_anyone_watches(
    undisturbed: Path, text: ParallelFiles, tmp_path: Path
) -> None:
    """And whatever torch's own generator was doing meanwhile."""
    torch.manual_seed(99)
    train(small_config("train.accumulate=2"), tmp_path / "again", text=text)
    assert digests(tmp_path / "again") == digests(undisturbed)


@pytest.mark.parametrize("step", [1, 4, 5, 11])
def test_killed_and_resumed_is_undisturbed_to_the_bit(
    undisturbed: Path, text: ParallelFiles, tmp_path: Path, step: int
) -> None:
    config, run = small_config("train.accumulate=2"), tmp_path / "run"
    with pytest.raises(KilledError):
        train(config, run, text=text, on_event=killer(step))
    report = train(config, run, text=text)
    assert report.state.step == 12
    assert digests(run) == digests(undisturbed)
    assert read_checkpoint(run / "checkpoints/step-00000012").state.epoch > 0, "an epoch was ended"
    steps = [line["step"] for line in read_metrics(run / "metrics.jsonl")]
    assert steps == sorted(steps)


def test_averaging_in_between_changes_nothing(
    undisturbed: Path, text: ParallelFiles, tmp_path: Path
) -> None:
    config, run = small_config("train.accumulate=2"), tmp_path / "run"
    with pytest.raises(KilledError):
        train(config, run, text=text, on_event=killer(9))
    assert average(RunDirectory(run), 2) == ([4, 8], [])
    train(config, run)
    assert digests(run) == digests(undisturbed)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("batch", [0, 1])
def test_a_signal_saves_the_last_whole_update(
    undisturbed: Path,
    text: ParallelFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
    batch: int,
) -> None:
    """In the first or second batch of update 6: the second still makes it whole."""
    config, run = small_config("train.accumulate=2"), tmp_path / "run"
    forward = TrainingStep.forward
    calls = 0

    def interrupted(self: TrainingStep, *ids: torch.Tensor) -> object:
        nonlocal calls
        if self.training:
            calls += 1
            if calls == ESTIMATED + 2 * 5 + batch + 1:
                signal.raise_signal(number)
        return forward(self, *ids)

    monkeypatch.setattr(TrainingStep, "forward", interrupted)
    report = train(config, run, text=text)
    last = 5 + batch
    assert (report.state.step, report.signal, 128 + report.signal) == (last, number, code)
    directory = RunDirectory(run)
    assert directory.steps() == [4, last]
    saved = read_state(directory.step_directory(last))
    assert saved.interrupted
    assert saved.valid_loss == math.inf
    monkeypatch.undo()
    train(config, run, text=text)
    assert directory.steps() == [4, 8, 12], "what was saved on being told to stop has gone"
    assert digests(run) == digests(undisturbed)


def test_a_damaged_checkpoint_is_reported_and_skipped(
    undisturbed: Path, text: ParallelFiles, tmp_path: Path
) -> None:
    config, run = small_config("train.accumulate=2"), tmp_path / "run"
    with pytest.raises(KilledError):
        train(config, run, text=text, on_event=killer(9))
    damaged = run / "checkpoints" / "step-00000008" / "optimizer.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    notes: list[Event] = []
    train(config, run, text=text, on_event=notes.append)
    texts = [note.text for note in notes if isinstance(note, Note)]
    assert any("step-00000008/optimizer.safetensors: damaged" in text for text in texts)
    assert any("going on from step 4" in text for text in texts)
    assert digests(run) == digests(undisturbed)


def test_accumulated_batches_are_one_large_batch(
    text: ParallelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, double: None
) -> None:
    """An update of two accumulated batches, against one of both batches' pairs together."""
    from headwise.data.batches import Batches

    changes = ("model.dropout=0.0", "train.max_steps=3", "train.average_last=1", "train.seed=3")
    train(small_config(*changes, "train.accumulate=2"), tmp_path / "two", text=text)
    epoch = Batches.epoch

    def in_twos(self: Batches, number: int) -> object:
        singles = list(epoch(self, number))
        for first, second in zip(singles[::2], singles[1::2], strict=False):
            yield torch.cat((torch.tensor(first), torch.tensor(second))).numpy()

    monkeypatch.setattr(Batches, "epoch", in_twos)
    train(small_config(*changes), tmp_path / "one", text=text)
    two, one = (
        read_weights(tmp_path / name / "checkpoints/step-00000003") for name in ("two", "one")
    )
    assert two["source_embedding.weight"].dtype == torch.float64
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=0, atol=1e-9)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_stops_before_the_update(
    text: ParallelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """At update 6: its checkpoint, the last at step 4, is left as it was."""
    config, run = small_config(), tmp_path / "run"
    forward = TrainingStep.forward
    models: list[list[torch.Tensor]] = []

    def broken(self: TrainingStep, *ids: torch.Tensor) -> object:
        sums, count = forward(self, *ids)
        if self.training and len(models) == ESTIMATED + 5:
            bad = sums.smoothed * math.nan
            if where == "gradient":  # A finite loss whose gradient is not.
                assert isinstance(self.model, Transformer)
                bad = sums.smoothed + (self.model.output.weight * 0).sqrt().sum()
            sums = sums._replace(smoothed=bad)
        if self.training:
            models.append([p.detach().clone() for p in self.parameters()])
        return sums, count

    monkeypatch.setattr(TrainingStep, "forward", broken)
    steps: list[TrainingStep] = []
    make = TrainingStep.__init__

    def remember(self: TrainingStep, model: nn.Module, *, label_smoothing: float) -> None:
        make(self, model, label_smoothing=label_smoothing)
        steps.append(self)

    monkeypatch.setattr(TrainingStep, "__init__", remember)
    what = "the loss is nan" if where == "loss" else "the gradient's norm is (nan|inf)"
    pattern = rf"update 6, epoch \d+, batch \d+ \(pairs .*{what}.*step-00000004"
    with pytest.raises(DivergenceError, match=pattern):
        train(config, run, text=text)
    for before, after in zip(models[-1], steps[0].parameters(), strict=True):
        assert torch.equal(before, after)
    assert RunDirectory(run).steps() == [4]


def test_the_same_command_with_other_settings_is_refused(
    undisturbed: Path, text: ParallelFiles, tmp_path: Path
) -> None:
    found = r"train.accumulate is 2 there and 1 here; train.seed is 1 there and 5 here\."
    with pytest.raises(ConfigError, match=f"is another run: {found}"):
        train(small_config("train.seed=5"), undisturbed, text=text)
    other = write_text(tmp_path, pairs=100)
    with pytest.raises(
        ConfigError, match=r"the text files are text.src \([\d,]+ bytes\), text.tgt"
    ):
        train(small_config("train.accumulate=2"), undisturbed, text=other)


def test_languages_are_those_of_the_files_names(text: ParallelFiles, tmp_path: Path) -> None:
    paths = tmp_path / "train.en", tmp_path / "train.de.gz"
    paths[0].write_bytes(text.sources[0].read_bytes())
    paths[1].write_bytes(gzip.compress(text.targets[0].read_bytes()))
    named = ParallelFiles.of(*paths)
    config, run = small_config("train.max_steps=2"), tmp_path / "run"
    train(config, run, text=named)
    data = RunDirectory(run).config().data
    assert (data.source_language, data.target_language) == ("en", "de")
    train(config, run, text=named)
    french = ("data.source_language=en", "data.target_language=fr")
    other = small_config("train.max_steps=2", *french)
    with pytest.raises(ConfigError, match="data.target_language is 'de' there and 'fr' here"):
        train(other, run, text=named)
    for given, files in ((("fr", "it"), named), (("", ""), text)):
        said = (f"data.source_language={given[0]}", f"data.target_language={given[1]}")
        run = tmp_path / f"run-{given[0]}"
        train(small_config("train.max_steps=2", *said), run, text=files)
        data = RunDirectory(run).config().data
        assert (data.source_language, data.target_language) == given


def test_a_run_must_have_something_to_train_on_and_a_place(
    text: ParallelFiles, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="is a new run: give its text"):
        train(small_config(), tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="mine exists and is not a run: choose another"):
        train(small_config(), tmp_path / "mine", text=text)
    with pytest.raises(DataError, match="supports at most"):
        train(small_config("data.vocab_size=9000"), tmp_path / "run", text=text)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_prepared_data_gives_the_same_run_as_its_text(
    undisturbed: Path, text: ParallelFiles, tmp_path: Path
) -> None:
    config = small_config("train.accumulate=2")
    prepare(text, config, tmp_path / "prepared")
    run = tmp_path / "run"
    with pytest.raises(KilledError):
        train(config, run, data=tmp_path / "prepared", on_event=killer(5))
    assert [path.name for path in (run / "data").iterdir()] == ["valid"]
    (tmp_path / "prepared").rename(tmp_path / "moved")
    with pytest.raises(DataError, match="no longer there: give it with --data"):
        train(config, run)
    (tmp_path / "prepared").symlink_to(tmp_path / "moved")
    notes: list[str] = []
    with pytest.raises(KilledError):
        train(config, run, on_event=noting(killer(7), notes))
    assert f"the run's data is in {tmp_path / 'prepared'}" in notes
    train(config, run, data=tmp_path / "moved")
    assert digests(run) == digests(undisturbed)
    prepare(write_text(tmp_path, seed=2), config, tmp_path / "other")
    with pytest.raises(ConfigError, match="other is not what the run was made from"):
        train(config, run, data=tmp_path / "other")


def test_a_config_of_another_size_is_found_before_a_model_is_made(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(undisturbed, tmp_path / "run")
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text("utf-8").replace("d_ff = 24", f"d_ff = {2**50}"))
    (tmp_path / "run/checkpoints/step-00000012/weights.safetensors").write_bytes(b"damaged")
    config = RunDirectory(tmp_path / "run").config()
    monkeypatch.setattr(
        "headwise.workflows.train._new_model", lambda *_: pytest.fail("a model was made")
    )
    with pytest.raises(
        CheckpointError, match=r"step-00000008: has [\d,]+ parameters, and .*config"
    ):
        train(config, tmp_path / "run")


def test_ids_of_another_vocabulary_are_found_before_training(
    text: ParallelFiles, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(small_config("train.max_steps=1"), run, text=text)
    ids = run / "data" / "valid" / "00000.source.ids"
    ids.write_bytes(b"\xff\xff" + ids.read_bytes()[2:])
    manifest = ids.parent / "manifest.json"
    body = json.loads(manifest.read_text("utf-8"))
    body["sha256"][ids.name] = hashlib.sha256(ids.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(body))
    with pytest.raises(
        DataError, match=r"00000\.source\.ids: has id 65535, and the vocabulary has"
    ):
        train(small_config("train.max_steps=1"), run)


def test_fine_tuning_starts_from_the_weights_and_subwords_of_another_run(
    undisturbed: Path, tmp_path: Path
) -> None:
    text = write_text(tmp_path, seed=7, pairs=60)
    run, config = (
        tmp_path / "tuned",
        small_config(
            "train.max_steps=1",
            "train.peak_rate=1e-30",
            "train.schedule=linear",
            "train.average_last=1",
        ),
    )
    train(config, run, text=text, init_from=undisturbed)
    assert (run / "tokenizer/joint.model").read_bytes() == (
        undisturbed / "tokenizer/joint.model"
    ).read_bytes()
    # A rate of next to nothing: what it starts from is what it ends with.
    assert digest(run / "checkpoints/step-00000001") == digest(undisturbed / "averaged")
    with pytest.raises(CheckpointError, match="is of another model"):
        train(small_config("model.num_layers=2"), tmp_path / "b", text=text, init_from=undisturbed)
    prepare(text, config, tmp_path / "prepared")
    with pytest.raises(ConfigError, match="was made with another tokenizer"):
        train(config, tmp_path / "c", data=tmp_path / "prepared", init_from=undisturbed)
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        train(config, tmp_path / "d", text=text, init_from=tmp_path / "nowhere")


def test_validation_is_what_torch_computes(undisturbed: Path) -> None:
    """Loss, NLL and both perplexities of the last checkpoint, pair by pair, by F.cross_entropy."""
    run = RunDirectory(undisturbed)
    config = run.config()
    source, target = run.subwords()
    model = Transformer(config.model, Vocab(source_size=len(source), target_size=len(target)))
    load_weights(model, read_weights(run.step_directory(12)), "here")
    model.eval()
    shards = TokenShards(undisturbed / "data" / "valid")
    nll = smoothed = 0.0
    tokens = words = 0
    size = len(target)
    for pair in range(len(shards)):
        src = [*shards.sequence("source", pair).tolist(), Vocab.eos]
        tgt = [Vocab.bos, *shards.sequence("target", pair).tolist(), Vocab.eos]
        logits = model(torch.tensor([src]), torch.tensor([tgt[:-1]]))[0]
        expected = torch.tensor(tgt[1:])
        nll += float(F.cross_entropy(logits, expected, reduction="sum").detach())
        smoothing = config.train.label_smoothing * size / (size - 1)
        smoothed += float(
            F.cross_entropy(logits, expected, reduction="sum", label_smoothing=smoothing).detach()
        )
        tokens += len(expected)
        words += len(target.decode(tgt[1:-1]).split()) + 1
    valid = read_metrics(run.metrics_file)[-1]
    assert valid["kind"] == "valid"
    assert (valid["tokens"], valid["words"]) == (tokens, words)
    assert valid["nll"] == pytest.approx(nll / tokens, rel=1e-5)
    assert valid["loss"] == pytest.approx(smoothed / tokens, rel=1e-5)
    assert valid["perplexity"] == pytest.approx(math.exp(nll / tokens), rel=1e-5)
    assert valid["word_perplexity"] == pytest.approx(math.exp(nll / words), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["train.max_epochs=2"], "train.max_epochs = 2"),
        (["train.max_tokens=1000"], "train.max_tokens = 1,000"),
        (["train.max_minutes=0.01"], "train.max_minutes = 0.01"),
        (
            ["train.patience=2", "train.schedule=linear", "train.peak_rate=1e-30"],
            "train.patience = 2: no better validation since",
        ),
    ],
)
def test_every_limit_ends_a_run(
    text: ParallelFiles, tmp_path: Path, changes: list[str], reason: str
) -> None:
    config = small_config("train.max_steps=10000", "train.save_every_steps=1", *changes)
    report = train(config, tmp_path / "run", text=text)
    assert report.reason.startswith(reason)
    shards = TokenShards(tmp_path / "run" / "data" / "train")
    epoch_tokens = int(shards.lengths("target").sum()) + len(shards)
    if "epochs" in reason:
        assert report.state.tokens == 2 * epoch_tokens
    if "tokens" in reason:
        assert 1000 <= report.state.tokens < 1000 + 150


def test_bleu_decides_which_checkpoint_is_best(
    text: ParallelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([3.0, 9.0, 5.0, 6.0])  # The last is the average's.
    monkeypatch.setattr(TranslationEvaluator, "measure", lambda *_: {"bleu": next(scores)})
    events: list[Event] = []
    config, run = small_config("train.bleu_pairs=5"), tmp_path / "run"
    report = train(config, run, text=text, on_event=events.append)
    assert report.state.best_step == 8
    assert choose(RunDirectory(run), "best") == RunDirectory(run).step_directory(8)
    validated = [e for e in events if isinstance(e, Validated)]
    found = [(e.result.figures["bleu"], e.is_best) for e in validated]
    assert found == [(3.0, True), (9.0, True), (5.0, False)]
    assert report.averaged is not None
    assert report.averaged.figures["bleu"] == 6.0
    lines = read_metrics(run / "metrics.jsonl")
    assert [line["bleu"] for line in lines if line["kind"] == "valid"] == [3.0, 9.0, 5.0]


def test_validation_bleu_is_that_of_greedy_translations(trained_run: Path) -> None:
    run = RunDirectory(trained_run)
    config = load_recipe(run.config_file, ["train.bleu_pairs=10"])
    trained, shards = load_model(run), TokenShards(trained_run / "data" / "valid")
    batches = training_batches(shards, config, TASK)
    data = ValidationData(shards=shards, batches=batches, folder=run.folder)
    trained.model.train()
    alone = World(rank=0, size=1, device=torch.device("cpu"))
    score = TASK.evaluator(data, config).measure(trained.model, 1.0, alone)["bleu"]
    assert trained.model.training
    texts = [
        [trained.target.decode(shards.sequence(side, n).tolist()) for n in range(10)]
        for side in ("source", "target")
    ]
    engine = TorchEngine(trained.model)
    ids = [trained.source.encode(line) for line in texts[0]]
    found = engine.translate(ids, SearchSettings(beam=1, stop="count"), 50)
    lines = [trained.target.decode(list(hypotheses[0].ids)) for hypotheses in found]
    assert score == sacrebleu.corpus_bleu(lines, [texts[1]]).score
    assert score > 1


def test_clipping_scales_the_gradient_to_its_norm(
    text: ParallelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms: list[float] = []
    step = torch.optim.Adam.step

    def watched(self: torch.optim.Adam) -> object:
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))
        return step(self)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    train(small_config("train.clip_norm=0.01", "train.max_steps=3"), tmp_path / "run", text=text)
    assert norms == [pytest.approx(0.01, rel=1e-4)] * 3
    logged = read_metrics(tmp_path / "run" / "metrics.jsonl")[0]["gradient_norm"]
    assert logged > 0.1, "the norm before clipping"


def test_bfloat16_learns_about_what_float32_does(text: ParallelFiles, tmp_path: Path) -> None:
    losses = {}
    for precision in ("float32", "bfloat16"):
        config = small_config(f"train.precision={precision}", "model.dropout=0.0")
        train(config, tmp_path / precision, text=text)
        losses[precision] = read_metrics(tmp_path / precision / "metrics.jsonl")[-1]["loss"]
        weights = read_weights(tmp_path / precision / "checkpoints/step-00000012")
        assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.01)


def test_tsv_and_separate_vocabularies_train_too(tmp_path: Path) -> None:
    parallel = write_text(tmp_path)
    rows = zip(
        *(p.read_text().splitlines() for p in (*parallel.sources, *parallel.targets)), strict=True
    )
    (tmp_path / "pairs.tsv").write_text("".join(f"x\t{tgt}\t{src}\n" for src, tgt in rows))
    config = small_config("data.joint=false", "model.tying=untied", "data.vocab_size=310")
    text = TsvFile(path=tmp_path / "pairs.tsv", source_column=3, target_column=2)
    report = train(config, tmp_path / "run", text=text)
    assert report.state.step == 12
    assert {p.name for p in (tmp_path / "run/tokenizer").iterdir()} == {
        "source.model",
        "target.model",
        "manifest.json",
    }
    train(config, tmp_path / "run", text=text)


def test_pairs_that_fit_no_batch_are_reported(text: ParallelFiles, tmp_path: Path) -> None:
    notes: list[Event] = []
    config = small_config("train.batch_tokens=9", "train.max_steps=1")
    train(config, tmp_path / "run", text=text, on_event=notes.append)
    texts = [note.text for note in notes if isinstance(note, Note) and note.is_warning]
    assert any("are longer than a batch or than the model" in text for text in texts)
    notes.clear()
    learned = small_config("model.positions=learned", "model.max_positions=8")
    train(learned, tmp_path / "positions", text=text, on_event=notes.append)
    texts = [note.text for note in notes if isinstance(note, Note) and note.is_warning]
    assert len(texts) == 2, "of the text to train on, and of that to validate on"


def test_what_would_stop_a_run_at_once_leaves_none(
    undisturbed: Path, text: ParallelFiles, tmp_path: Path
) -> None:
    """So that the mended command can be given again under the same name."""
    with pytest.raises(DataError, match="none of .* pairs fits a batch: raise train.batch_tokens"):
        train(small_config("train.batch_tokens=2"), tmp_path / "run", text=text)
    with pytest.raises(CheckpointError, match="is of another model"):
        train(small_config("model.d_ff=32"), tmp_path / "run", text=text, init_from=undisturbed)
    with pytest.raises(ConfigError, match="give the run a directory of its own"):
        train(small_config(), "/", text=text)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="link is a link or a mount"):
        train(small_config(), tmp_path / "link", text=text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_a_validation_line_that_is_too_long_is_reported(tmp_path: Path) -> None:
    text = write_text(tmp_path)
    sentence = text.sources[0].read_text().splitlines()[0]
    for name, lines in (("v.src", [sentence, "bana " * 50_000]), ("v.tgt", [sentence] * 2)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    valid = ParallelFiles.of(tmp_path / "v.src", tmp_path / "v.tgt")
    notes: list[Event] = []
    config = small_config("train.max_steps=1")
    train(config, tmp_path / "run", text=text, valid=valid, on_event=notes.append)
    texts = [note.text for note in notes if isinstance(note, Note)]
    assert any(text.startswith("1 of 2 pairs in") for text in texts)
    assert (
        read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["words"] == len(sentence.split()) + 1
    )


def test_fine_tuning_that_was_killed_at_once_still_starts_from_the_other_run(
    undisturbed: Path, tmp_path: Path
) -> None:
    text, config = write_text(tmp_path, seed=7, pairs=60), small_config("train.max_steps=2")
    with pytest.raises(KilledError):
        train(config, tmp_path / "run", text=text, init_from=undisturbed, on_event=killer(1))
    notes: list[Event] = []
    train(config, tmp_path / "run", on_event=notes.append)
    assert any("starting from the weights of" in n.text for n in notes if isinstance(n, Note))
    train(config, tmp_path / "whole", text=text, init_from=undisturbed)
    assert digest(tmp_path / "run/averaged") == digest(tmp_path / "whole/averaged")
    assert RunDirectory(tmp_path / "run").origin()["init_from"] == str(undisturbed.resolve())


def test_damage_to_an_older_checkpoint_does_not_stop_the_end(
    text: ParallelFiles, tmp_path: Path
) -> None:
    config, run = small_config(), tmp_path / "run"
    with pytest.raises(KilledError):
        train(config, run, text=text, on_event=killer(9))
    (run / "checkpoints/step-00000004/weights.safetensors").write_bytes(b"x")
    notes: list[Event] = []
    report = train(config, run, on_event=notes.append)
    assert report.averaged_steps == (8, 12)
    texts = [note.text for note in notes if isinstance(note, Note) and note.is_warning]
    assert any("step-00000004/weights.safetensors: damaged" in text for text in texts)


def test_an_average_of_the_users_own_choice_is_kept(text: ParallelFiles, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small_config(), run, text=text)
    average(RunDirectory(run), 1)
    assert train(small_config(), run).averaged_steps == (12,)


def test_too_little_memory_is_a_one_line_error(
    text: ParallelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = TrainingStep.forward

    def full(self: TrainingStep, *ids: torch.Tensor) -> object:
        if RunDirectory(tmp_path / "run").metrics_file.exists():
            torch.empty(2**60)
        return forward(self, *ids)

    monkeypatch.setattr(TrainingStep, "forward", full)
    with pytest.raises(ConfigError, match="not enough memory for update 1: lower train.batch_tok"):
        train(small_config(), tmp_path / "run", text=text)


def test_a_run_made_with_other_processes_is_refused(
    undisturbed: Path, text: ParallelFiles, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    config = small_config("train.accumulate=2")
    with pytest.raises(KilledError):
        train(config, run, text=text, on_event=killer(5))
    origin = json.loads((run / "origin.json").read_text())
    assert origin["text"][0][0] == "text.src"
    edited = Config.from_dict(
        config.to_dict() | {"train": {**config.to_dict()["train"], "accumulate": 1}}
    )
    (run / "config.toml").write_text(edited.to_toml())
    with pytest.raises(CheckpointError, match="an update of this run has 2 batches, and here it"):
        train(edited, run, text=text)
