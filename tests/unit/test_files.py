import errno
import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import UnsafeFileError
from headwise.files import (
    Folder,
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


_KILLED = """
import os, signal, sys
from pathlib import Path
from headwise.files import new_directory
with new_directory(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path / "made")], check=False)
    (left,) = names(tmp_path)
    assert left.startswith(".made.")
    with new_directory(tmp_path / "other") as living:
        with new_directory(tmp_path / "made") as second, new_directory(tmp_path / "made") as third:
            assert names(tmp_path) == sorted([living.name, second.name, third.name])
            remove_abandoned(tmp_path, alone=True)
            assert names(tmp_path) == sorted([living.name, second.name, third.name])
        assert names(tmp_path) == sorted([living.name, "made"])


def test_without_locks_leftovers_stay_unless_the_caller_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / ".made.00ff.tmp").mkdir()
    with new_directory(tmp_path / "made"):
        pass
    assert names(tmp_path) == [".made.00ff.tmp", "made"]
    remove_abandoned(tmp_path, alone=True)
    assert names(tmp_path) == ["made"]


def test_planted_temporary_names_are_harmless(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    (tmp_path / "run").mkdir()
    for number in (os.getpid(), 0, 1):
        (tmp_path / "run" / f".report.html.{number}.tmp").symlink_to(other)
    os.mkfifo(tmp_path / "run" / ".report.html.2.tmp")
    replace_file(tmp_path / "run" / "report.html", b"page")
    remove_abandoned(tmp_path / "run")
    assert names(tmp_path / "run") == ["report.html"]
    assert other.read_bytes() == b"precious"


def test_a_new_file_is_never_written_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "other")
    with pytest.raises(FileExistsError, match="File exists"):
        write_file(tmp_path / "file", b"x")
    assert not (tmp_path / "other").exists()


def test_a_folder_reads_regular_files_by_whatever_name_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "real" / "inner" / "file").write_bytes(b"[1]")
    (tmp_path / "link").symlink_to("real")
    folder = Folder.of(tmp_path / "link")
    assert (folder / "inner").read("file", 3) == b"[1]"
    assert (folder / "inner").read_json("file", 3) == [1]
    assert (folder / "inner").names() == ["file"]
    assert folder.exists()
    assert folder.has("inner")
    assert not folder.has("none")
    assert not (folder / "none").exists()
    assert (folder / "none").names() == []
    with pytest.raises(UnsafeFileError, match=r"file is too large: 3 bytes, where at most 2 are"):
        (folder / "inner").read("file", 2)
    with pytest.raises(UnsafeFileError, match="link/inner is a directory, not a regular file"):
        folder.read("inner", 9)
    with pytest.raises(UnsafeFileError, match="inner/file is a file, not a directory"):
        (folder / "inner" / "file").names()
    with pytest.raises(FileNotFoundError, match="No such file"):
        folder.read("none", 9)


@pytest.mark.parametrize("target", ["real", "/etc", "nowhere"])
def test_a_folder_goes_through_no_symlink(tmp_path: Path, target: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "passwd").write_bytes(b"x")
    (tmp_path / "inner").symlink_to(target)
    folder = Folder.of(tmp_path)
    named = rf"{re.escape(str(tmp_path))}/inner is a symlink.*mount --bind"
    for read in (
        lambda: (folder / "inner").read("passwd", 9999),
        (folder / "inner").names,
        (folder / "inner").exists,
        (folder / "inner" / "deeper").exists,
    ):
        with pytest.raises(UnsafeFileError, match=named):
            read()
    with pytest.raises(
        UnsafeFileError, match="inner is a symlink.*put the file itself in its place"
    ):
        folder.read("inner", 9)


def test_a_folder_opens_no_fifo_socket_or_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, kind in (("fifo", "FIFO"), ("socket", "socket")):
            with pytest.raises(UnsafeFileError, match=f"{name} is a {kind}, not a regular file"):
                Folder.of(tmp_path).read(name, 9)
    with pytest.raises(UnsafeFileError, match="/dev/zero is a device, not a regular file"):
        Folder.of(Path("/dev")).read("zero", 9)


def test_what_is_nested_too_deeply_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        Folder.of(tmp_path).read_json("file", 100_000)


def test_directories_that_are_made_on_the_way_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr("headwise.files.sync_directory", flushed.append)
    with new_directory(tmp_path / "a" / "b" / "made"):
        pass
    assert flushed == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


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


def test_a_directory_that_is_being_removed_is_left_to_the_one_who_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made" / "inner").mkdir(parents=True)
    rmtree, seen = shutil.rmtree, []

    def remove(path: Path) -> None:
        monkeypatch.setattr(shutil, "rmtree", rmtree)
        remove_abandoned(tmp_path, alone=True)
        seen.extend(names(tmp_path))
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", remove)
    remove_directory(tmp_path / "made")
    assert [name.startswith(".made.") for name in seen] == [True]
    assert names(tmp_path) == []


@pytest.mark.parametrize("function", ["open", "rmdir"])
def test_what_belongs_to_another_user_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    (tmp_path / ".made.00ff.tmp").mkdir()
    original = getattr(os, function)

    def refuse(path: object, *arguments: Any, **options: Any) -> Any:
        if ".made.00ff.tmp" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, function, refuse)
    with new_directory(tmp_path / "made"):
        pass
    assert names(tmp_path) == [".made.00ff.tmp", "made"]
