from pathlib import Path

import pytest

from tests.made_once import made_once


def test_it_is_made_once_and_each_has_a_copy(tmp_path_factory: pytest.TempPathFactory) -> None:
    calls: list[Path] = []

    def make(directory: Path) -> None:
        calls.append(directory)
        (directory / "run").mkdir()
        (directory / "run" / "file").write_text("as made")

    first, second = (made_once(tmp_path_factory, "counted", make) / "run" for _ in range(2))
    (first / "file").write_text("changed")
    third = made_once(tmp_path_factory, "counted", make) / "run"
    assert len(calls) == 1
    assert [(run / "file").read_text() for run in (second, third)] == ["as made"] * 2


def test_nothing_is_left_of_one_that_fails(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        made_once(tmp_path_factory, "failing", fail)
    made = made_once(tmp_path_factory, "failing", lambda directory: (directory / "whole").touch())
    assert [path.name for path in made.iterdir()] == ["whole"]
