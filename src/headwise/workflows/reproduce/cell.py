"""One training of a table: train a run, or go on with it, then measure it.

`children.py` starts this as a process of its own. The request is a line of JSON on stdin, the
answer one on stdout.
"""

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from headwise.config import AnyConfig, Config
from headwise.data import TokenShards
from headwise.data.text import read_lines
from headwise.errors import HeadwiseError
from headwise.evaluation import bleu
from headwise.files import parse_json, remove_directory
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.runs.environment import describe, read_sessions, source_digest
from headwise.runs.metrics import read_metrics
from headwise.tasks.translation.trained import TrainedModel, load_model
from headwise.tasks.translation.translator import Translator
from headwise.training.events import Event, Note
from headwise.workflows.train import train

_MOST_PAIRS = 1000
"""Of the validation text that are translated."""

_MOST_TOKENS = 500
"""Of a sentence that is translated: learned positions end somewhere, and rows of a table must be
measured on the same sentences."""

_SAVE_SECONDS = 60.0
"""How long a training may take to save after the process that started it has gone."""

_LENGTHS = (5, 10, 15, 20, 30, 40, 60, 100)
"""Source tokens at which one group of sentences ends and the next begins."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What to train, where, and what to measure it on."""

    name: str
    config: AnyConfig
    run: Path
    data: Path
    """Prepared, and shared by all trainings of a table."""
    test: Path | None = None
    """Test sentences as `write_test` writes them; None to measure on the validation text alone."""
    translates: bool = True
    """Whether to measure BLEU: an untrained model writes long nonsense, which takes minutes."""

    def to_json(self) -> str:
        """Return the request that `from_json` reads."""
        values = {
            "name": self.name,
            "config": self.config.to_dict(),
            "run": str(self.run),
            "data": str(self.data),
            "test": None if self.test is None else str(self.test),
            "translates": self.translates,
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read a request."""
        values = parse_json(text)
        return cls(
            name=values["name"],
            config=Config.from_dict(values["config"]),
            run=Path(values["run"]),
            data=Path(values["data"]),
            test=None if values["test"] is None else Path(values["test"]),
            translates=values["translates"],
        )


@dataclass(frozen=True, kw_only=True)
class TestSentence:
    """A source and its translations."""

    __test__ = False  # For pytest: this is no class of tests.

    source: str
    references: tuple[str, ...]
    is_long: bool = False
    """Whether it is longer than every source in training."""


def write_test(sentences: Iterable[TestSentence]) -> bytes:
    """Return test sentences as lines of JSON."""
    return "".join(json.dumps(vars(sentence)) + "\n" for sentence in sentences).encode()


def read_test(path: Path) -> list[TestSentence]:
    """Read what `write_test` returned."""
    found = (parse_json(line.encode()) for line in read_lines(path))
    return [
        TestSentence(
            source=each["source"], references=tuple(each["references"]), is_long=each["is_long"]
        )
        for each in found
    ]


def train_and_measure(training: Training) -> dict[str, Any]:
    """Train until the config's limits and return the results as JSON values."""
    warnings: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Note) and event.is_warning:
            warnings.append(event.text)

    report = train(training.config, training.run, data=training.data, on_event=on_event)
    if report.signal:
        raise SystemExit(128 + report.signal)
    run = RunDirectory(training.run)
    lines = read_metrics(run.metrics_file)
    curve = [
        {key: line[key] for key in ("minutes", "step", "perplexity", "bleu") if key in line}
        for line in lines
        if line["kind"] == "valid"
    ]
    if not curve:
        raise HeadwiseError(f"{training.run}: there is no validation text to measure it on")
    trained = load_model(run, "averaged" if report.averaged_steps else "last")
    # Translator splits sources that are longer than training had seen, and here they are the test.
    translator = Translator.of_model(trained, longest_source=sys.maxsize)
    speeds = sorted(line["target_tokens_per_second"] for line in lines if line["kind"] == "train")
    final = report.averaged.perplexity if report.averaged else curve[-1]["perplexity"]
    result: dict[str, Any] = {
        "parameters": sum(tensor.numel() for tensor in trained.model.parameters()),
        "steps": report.state.step,
        "tokens": report.state.tokens,
        "minutes": report.state.minutes,
        "tokens_per_second": speeds[len(speeds) // 2] if speeds else None,
        "perplexity": final,
        "curve": curve,
        "config": training.config.to_dict(),
        "sessions": _sessions(run),
        "warnings": warnings,
    }
    if training.translates:
        result["bleu"] = _validation_bleu(trained, translator, training.data)
    if training.test is not None:
        result["test"] = _measure_test(trained, translator, read_test(training.test))
    _remove_older_checkpoints(run)
    return result


def _sessions(run: RunDirectory) -> list[dict[str, Any]]:
    """Return what the sessions of a run ran on, each combination once."""
    keys = describe(choose_device(None), 1)
    found = [{key: each.get(key) for key in keys} for each in read_sessions(run.environment_file)]
    code = source_digest()
    return [{**each, "code": code} for n, each in enumerate(found) if each not in found[:n]]


def _validation_bleu(trained: TrainedModel, translator: Translator, data: Path) -> float | None:
    shards = TokenShards(data / "valid")
    pairs = [
        (
            trained.source.decode(shards.sequence("source", n).tolist()),
            trained.target.decode(shards.sequence("target", n).tolist()),
        )
        for n in range(len(shards))
        if max(len(shards.sequence(side, n)) for side in ("source", "target")) <= _MOST_TOKENS
    ][:_MOST_PAIRS]
    if not pairs:
        return None
    found = [each.text for each in translator.translate([source for source, _ in pairs])]
    return bleu(found, [[target for _, target in pairs]]).value


def _measure_test(
    trained: TrainedModel, translator: Translator, sentences: Sequence[TestSentence]
) -> dict[str, Any]:
    """Score test sentences: the usual ones, those longer than training's, and all by length."""
    lengths = [len(trained.source.encode(each.source)) for each in sentences]
    found = [each.text for each in translator.translate([each.source for each in sentences])]
    log_probs = translator.score([(each.source, each.references[0]) for each in sentences])

    def scores(chosen: list[int]) -> dict[str, Any]:
        tokens = sum(translator.count_target_tokens(sentences[n].references[0]) for n in chosen)
        references = [sentences[n].references for n in chosen]
        columns = [
            [each[column] if column < len(each) else None for each in references]
            for column in range(max(map(len, references)))
        ]
        return {
            "sentences": len(chosen),
            "bleu": bleu([found[n] for n in chosen], columns).value,
            "perplexity": math.exp(-math.fsum(log_probs[n] for n in chosen) / tokens),
        }

    by_length = []
    for low, high in zip((0, *_LENGTHS), (*_LENGTHS, sys.maxsize), strict=True):
        if chosen := [n for n, length in enumerate(lengths) if low < length <= high]:
            last = high if high < sys.maxsize else max(lengths)
            by_length.append({"from": low + 1, "to": last, **scores(chosen)})
    usual = [n for n, each in enumerate(sentences) if not each.is_long]
    long = [n for n, each in enumerate(sentences) if each.is_long]
    return {
        "usual": scores(usual) if usual else None,
        "long": scores(long) if long else None,
        "by_length": by_length,
    }


def _remove_older_checkpoints(run: RunDirectory) -> None:
    """Leave only the last: the runs of a whole table would fill a disk."""
    with run.locked():
        for step in run.steps()[:-1]:
            remove_directory(run.step_directory(step))


def main() -> None:
    """Answer the request on stdin; end as soon as stdin does, with the process that sent it."""
    torch.set_num_threads(int(sys.argv[1]))
    training = Training.from_json(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer: dict[str, Any]
    try:
        answer = {"result": train_and_measure(training)}
    except (HeadwiseError, OSError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()


def _end_with_parent() -> None:
    # Not through sys.stdin, whose lock this thread would hold when the interpreter ends.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # A training saves its last update.
    time.sleep(_SAVE_SECONDS)
    os._exit(1)
