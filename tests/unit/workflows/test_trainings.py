"""What the trainings of a table share: stored results, progress, and what they were trained on."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwise.config import Config
from headwise.data import ParallelFiles, TsvFile
from headwise.errors import ConfigError, HeadwiseError
from headwise.recipes import load_recipe
from headwise.workflows.reproduce import children
from headwise.workflows.reproduce.cell import Training
from headwise.workflows.reproduce.store import CellStore, only_writer
from headwise.workflows.reproduce.trainings import (
    folder_of,
    run_missing,
    sessions_of,
    text_conditions,
)


def training(name: str, folder: Path, **changes: Any) -> Training:
    config = load_recipe("demo")
    config = replace(config, train=replace(config.train, **changes))
    return Training(name=name, config=config, run=folder / name, data=folder)


def result(each: Training, **session: object) -> dict[str, Any]:
    return {
        "perplexity": 5.0,
        "bleu": 20.0,
        "minutes": 1.0,
        "warnings": [],
        "config": each.config.to_dict(),
        "sessions": [session],
    }


def run(trainings: list[Training], store: CellStore) -> tuple[list[str], list[int]]:
    said: list[str] = []
    shares: list[int] = []
    run_missing(
        trainings,
        store,
        costs={each.name: float(number) for number, each in enumerate(trainings, 1)},
        jobs=1,
        on_progress=lambda _, done, __: shares.append(done),
        say=said.append,
    )
    return said, shares


def test_a_training_that_fails_does_not_keep_others_from_being_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = [training(name, tmp_path) for name in ("first", "second", "third")]

    def train(_: children.Children, each: Training) -> dict[str, Any]:
        if each.name == "second":
            raise HeadwiseError("second: the loss is nan")
        return result(each)

    monkeypatch.setattr(children.Children, "train", train)
    store = CellStore(tmp_path / "cells.json", {})
    with pytest.raises(HeadwiseError, match="^second: the loss is nan$"):
        run(trainings, store)
    assert "first" in store
    assert "third" in store
    monkeypatch.setattr(children.Children, "train", lambda _, each: result(each))
    said, shares = run(trainings, store)
    assert said[0] == "1 of 3 trainings to do, 1 at a time"
    assert said[-1].endswith("0 of 3 trainings left")
    assert (shares[0], shares[-1]) == (667, 1000), "by their costs: 1 and 3 of 6 are done"


def test_results_of_other_settings_are_refused(tmp_path: Path) -> None:
    store = CellStore(tmp_path / "cells.json", {})
    old = training("base", tmp_path, peak_rate=1e-3)
    store.cell("base", lambda: result(old))
    reopened = CellStore(tmp_path / "cells.json", {})
    assert run([old], reopened) == ([], [])
    message = "base was trained with other settings: train.peak_rate was 0.001 and is 0.002"
    with pytest.raises(ConfigError, match=message):
        run([training("base", tmp_path, peak_rate=2e-3)], reopened)


def test_what_some_were_trained_on_is_said(tmp_path: Path) -> None:
    store = CellStore(tmp_path / "cells.json", {})
    for name, code in (("base", "aa"), ("big", "bb"), ("small", "aa")):
        found = result(training(name, tmp_path), cpu="X", code=code)
        store.cell(name, partial(dict, found))
    common, differing = sessions_of(store, ["base", "big", "small"])
    assert common == {"cpu": "X"}
    assert differing == ("Not all trainings had the same code: aa (base, small); bb (big).",)


def test_a_text_is_told_from_its_reverse(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    (tmp_path / "b").write_text("y\n")
    forward = text_conditions(ParallelFiles.of(tmp_path / "a", tmp_path / "b"), None)
    backward = text_conditions(ParallelFiles.of(tmp_path / "b", tmp_path / "a"), None)
    assert forward != backward
    assert folder_of(forward) != folder_of(backward)
    assert folder_of(forward) == folder_of(dict(reversed(forward.items())))
    (tmp_path / "t.tsv").write_text("x\ty\n")
    table = text_conditions(TsvFile(path=tmp_path / "t.tsv"), None)
    assert table != text_conditions(
        TsvFile(path=tmp_path / "t.tsv", source_column=2, target_column=1), None
    )


def test_one_command_at_a_time_writes_the_results(tmp_path: Path) -> None:
    path = tmp_path / "out" / "table3.json"
    with only_writer(path):
        with (
            pytest.raises(ConfigError, match="another command is writing to it"),
            only_writer(path),
        ):
            pass
        with only_writer(tmp_path / "out" / "baseline.json"):
            pass
    with only_writer(path):
        pass


def test_the_config_of_a_request_survives_it(tmp_path: Path) -> None:
    sent = training("base", tmp_path)
    received = Training.from_json(sent.to_json().encode())
    assert received == sent
    assert isinstance(received.config, Config)
