import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwise.files import (
    new_directory,
    remove_abandoned,
    remove_directory,
    replace_file,
    replaced_directory,
    restore_replaced,
    write_file,
    write_output,
)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    with new_directory(tmp_path / "made") as directory:
        write_file(directory / "a", b"1")
        assert not (tmp_path / "made").exists()
    assert names(tmp_path) == ["made"]
    assert (tmp_path / "made" / "a").read_bytes() == b"1"


def test_nothing_is_left_of_a_directory_that_failed(tmp_path: Path) -> None:
    def fill() -> None:
        with new_directory(tmp_path / "made") as directory:
            write_file(directory / "a", b"1")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fill()
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(
    tmp_path: Path,
) -> None:
    dead = f".made.{dead_process()}.tmp"
    # In a container every process is number 1, and one that was killed had our own.
    (tmp_path / f".made.{os.getpid()}.tmp").mkdir()
    alive = f".made.{os.getppid()}.tmp"
    other = f".other.{dead_process()}.tmp"
    for name in (dead, alive, other):
        (tmp_path / name).mkdir()
    with new_directory(tmp_path / "made"):
        pass
    assert names(tmp_path) == sorted([alive, "made", other])
    remove_abandoned(tmp_path)
    assert names(tmp_path) == sorted([alive, "made"])


def test_a_file_is_replaced_or_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"

    def full(_: int) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        replace_file(path, b"newer")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_what_somebody_names_is_written_through_links_and_into_pipes(tmp_path: Path) -> None:
    real, link, pipe = (tmp_path / name for name in ("real", "link", "pipe"))
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_output(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    write_output(tmp_path / "none yet", b"first")
    assert (tmp_path / "none yet").read_bytes() == b"first"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_output(pipe, b"through")
    reader.join(10)
    assert found == [b"through"]
    assert pipe.is_fifo()
    replace_file(link, b"a file of its own")
    assert not link.is_symlink()
    assert real.read_bytes() == b"new"


def test_of_a_link_only_the_link_is_removed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    remove_directory(tmp_path / "link")
    assert names(tmp_path) == ["real"]
    assert names(tmp_path / "real") == ["file"]


def test_a_directory_is_replaced_or_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "made"
    for content in (b"old", b"new"):
        with replaced_directory(path) as directory:
            write_file(directory / "a", content)
    with pytest.raises(OSError, match="full"), replaced_directory(path) as directory:
        raise OSError("full")
    assert (path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["made"]


def test_a_directory_whose_successor_never_came_is_put_back(tmp_path: Path) -> None:
    path = tmp_path / "made"
    (tmp_path / ".made.replaced").mkdir()
    restore_replaced(path)
    assert names(tmp_path) == ["made"]
    # Killed after the successor came: the old one goes.
    (tmp_path / ".made.replaced").mkdir()
    write_file(path / "a", b"new")
    restore_replaced(path)
    assert names(tmp_path) == ["made"]
    assert names(path) == ["a"]
    remove_directory(path)
    assert names(tmp_path) == []
