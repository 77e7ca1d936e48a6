"""The key file under concurrent changes, its owner and its mode."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import ConfigError
from headwise.serving.keys import Keys, add_key


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_keys_added_concurrently_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    added: dict[str, str] = {}

    def add(who: str) -> None:
        for number in range(20):
            name = f"{who}{number}"
            added[name] = add_key(file, name)

    threads = [threading.Thread(target=add, args=(who,)) for who in ("alice", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = Keys(file)
    assert len(added) == 40
    assert {name: keys.holder(key) for name, key in added.items()} == {name: name for name in added}
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_is_private_and_an_existing_one_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    before = os.umask(0)
    try:
        add_key(file, "alice")
        assert mode(file) == 0o600
        file.chmod(0o640)
        add_key(file, "bob")
    finally:
        os.umask(before)
    assert mode(file) == 0o640


def test_a_symlink_stays_a_symlink(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "keys"
    link.symlink_to(file)
    add_key(link, "alice")
    add_key(link, "bob")
    assert link.is_symlink()
    assert len(file.read_text().splitlines()) == 3


def owned_by_another(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Let a file seem to be another user's, which only root could make it."""
    stat = Path.stat

    def seeming(path: Path, **options: Any) -> os.stat_result:
        found = stat(path, **options)
        if path == file:
            found = os.stat_result((*found[:4], 4321, 8765, *found[6:]))
        return found

    monkeypatch.setattr(Path, "stat", seeming)


def test_a_file_keeps_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (tmp_path / "keys").resolve()
    add_key(file, "alice")
    owned_by_another(monkeypatch, file)
    owners = []
    monkeypatch.setattr("os.fchown", lambda _, user, group: owners.append((user, group)))
    add_key(file, "bob")
    assert owners == [(4321, 8765)]


def test_a_file_that_cannot_keep_its_owner_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = (tmp_path / "keys").resolve()
    add_key(file, "alice")
    content = file.read_bytes()
    owned_by_another(monkeypatch, file)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.fchown", refuse)
    with pytest.raises(ConfigError, match="keys: not changed: .*user 4321 and group 8765"):
        add_key(file, "bob")
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]
