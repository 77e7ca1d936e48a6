"""Files on disk: written whole or not at all, and read only if they are what they seem.

A directory may come from a stranger, by mail or from an archive. `Folder` reads such a directory:
regular files only, none larger than expected, and through no symlink. Temporary names are random
and new, so that a planted file or symlink of that name cannot exist.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Literal

from headwise.errors import UnsafeFileError

_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Open the file itself, and never wait for the other end of a FIFO."""

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL)
"""What flock answers on file systems without locks. NFS answers EBADF for directories."""


@dataclass(frozen=True)
class Folder:
    """A directory that may come from a stranger.

    A user names `root`, and it may be a symlink. Everything beneath it must be a plain directory
    or a regular file; anything else is an UnsafeFileError that names it.
    """

    path: Path
    root: Path

    @classmethod
    def of(cls, place: "Path | Folder") -> "Folder":
        """Return a folder; a plain path is one that a user names."""
        return place if isinstance(place, Folder) else cls(place, place)

    def __truediv__(self, name: str) -> "Folder":
        """Return a folder beneath this one."""
        return Folder(self.path / name, self.root)

    def open(self, name: str, most_bytes: int) -> BufferedReader:
        """Open a regular file of at most so many bytes."""
        path = self.path / name
        with self._opened() as directory:
            # Before opening as well: opening some devices has effects.
            _check_regular(os.stat(name, dir_fd=directory, follow_symlinks=False), path)
            handle = os.open(name, os.O_RDONLY | _OPEN, dir_fd=directory)
        try:
            status = os.fstat(handle)
            _check_regular(status, path)
            _check_size(status.st_size, most_bytes, path)
            return open(handle, "rb")
        except BaseException:
            os.close(handle)
            raise

    def read(self, name: str, most_bytes: int) -> bytes:
        """Read a regular file of at most so many bytes."""
        with self.open(name, most_bytes) as file:
            content = file.read(most_bytes + 1)  # It may have grown since it was opened.
        _check_size(len(content), most_bytes, self.path / name)
        return content

    def read_json(self, name: str, most_bytes: int) -> Any:
        """Read a JSON file; ValueError says what is wrong with it."""
        return parse_json(self.read(name, most_bytes))

    def has(self, name: str) -> bool:
        """Return whether there is an entry of this name, whatever it is."""
        try:
            with self._opened() as directory:
                os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def exists(self) -> bool:
        """Return whether the directory is there."""
        try:
            with self._opened():
                return True
        except FileNotFoundError:
            return False

    def names(self) -> list[str]:
        """List the entries; none where the directory does not exist."""
        try:
            with self._opened() as directory:
                return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the directory, one component after the other, so that none can be a symlink."""
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            place = self.root
            for part in self.path.relative_to(self.root).parts:
                place = place / part
                status = os.stat(part, dir_fd=handle, follow_symlinks=False)
                _check_directory(status, place)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _OPEN, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def parse_json(content: bytes) -> Any:
    """Parse JSON; ValueError also for what is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def open_in_place(path: Path | str, flags: int) -> int:
    """Open a regular file to write to it, made where there is none; never through a symlink."""
    with suppress(FileNotFoundError):
        _check_regular(os.lstat(path), Path(path))
    try:
        handle = os.open(path, flags | _OPEN, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeFileError(_symlink(Path(path), "file")) from error
        raise
    try:
        _check_regular(os.fstat(handle), Path(path))
    except BaseException:
        os.close(handle)
        raise
    return handle


def write_file(path: Path, content: bytes) -> None:
    """Write a new file of a directory that is still being made, and flush it to disk."""
    with create_file(path) as file:
        file.write(content)
        flush(file)


def create_file(path: Path) -> BinaryIO:
    """Open a new file to write; it is an error if there is one of that name, or a symlink."""
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o666), "wb")


def flush(file: BinaryIO) -> None:
    """Flush to disk what has been written to a file."""
    file.flush()
    os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in the place of another, or of none; readers see the one or the other, whole.

    A symlink at `path` is replaced, not followed.
    """
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which takes the place of `path` when the block ends without error."""
    temporary, handle = _claim(path, directory=False)
    try:
        with open(handle, "wb") as file:
            yield file
            flush(file)
            # While the file is open, and thereby locked.
            temporary.rename(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_output(path: Path, content: bytes) -> None:
    """Write where a user wants it: a file becomes whole or stays, a device or FIFO is fed.

    A symlink stays, and what it points to is written. For files that no user has named, such as
    those of a run directory, `replace_file` follows no symlink.
    """
    # /dev/stdout may lead to a file, but means the open output of this process.
    if path.exists() and (not path.is_file() or path.is_relative_to("/dev")):
        path.write_bytes(content)
    else:
        replace_file(path.resolve(), content)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield a directory to fill, which takes the name `path` when the block ends without an error.

    The block flushes the files it writes (`write_file`). Nothing is left of a block that fails;
    what a killed process left is removed by the next that makes the same directory.
    """
    make_directories(path.parent)
    remove_abandoned(path.parent, path.name)
    temporary, handle = _claim(path, directory=True)
    try:
        yield temporary
        os.fsync(handle)
        temporary.rename(path)
        sync_directory(path.parent)
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)
        os.close(handle)


@contextmanager
def replaced_directory(path: Path) -> Iterator[Path]:
    """Yield a directory to fill, which takes the place of `path` when the block ends well.

    A process killed between the two renamings leaves the old one as `.NAME.replaced`;
    `restore_replaced` puts it back.
    """
    restore_replaced(path)
    new = _new(path)
    with new_directory(new) as temporary:
        yield temporary
    replaced = _replaced(path)
    if os.path.lexists(path):
        path.rename(replaced)
    new.rename(path)
    sync_directory(path.parent)
    if os.path.lexists(replaced):
        remove_directory(replaced)


def restore_replaced(path: Path) -> None:
    """Put back a directory whose successor never came, and remove one that came too late."""
    replaced, new = _replaced(path), _new(path)
    if os.path.lexists(new):
        remove_directory(new)
    if not os.path.lexists(replaced):
        return
    if os.path.lexists(path):
        remove_directory(replaced)
    else:
        replaced.rename(path)


def remove_directory(path: Path) -> None:
    """Remove a directory; its name is gone at once, so that it never stands for half of it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()  # Not what a symlink points to.
        return
    remove_abandoned(path.parent, path.name)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try_lock(handle)  # So that no other process removes the rest at the same time.
        doomed = _temporary(path)
        path.rename(doomed)
        shutil.rmtree(doomed)
    finally:
        os.close(handle)


def remove_abandoned(directory: Path, name: str | None = None, *, alone: bool = False) -> None:
    """Remove what killed processes were writing, under one name or under any.

    A process that writes holds a lock on its temporary file or directory; the kernel releases it
    when the process ends, on whatever host or in whatever container it ran. Where a file system
    has no such locks, leftovers stay, except if the caller knows that it is the only one who
    writes here (`alone`).
    """
    if not directory.is_dir():
        return
    pattern = re.compile(rf"\.{'.+' if name is None else re.escape(name)}\.[0-9a-f]{{1,32}}\.tmp")
    for path in directory.iterdir():
        if pattern.fullmatch(path.name):
            _remove_if_abandoned(path, alone=alone)


def make_directories(path: Path) -> None:
    """Make a directory with its parents, and flush to disk that they are there."""
    if path.is_dir():
        return
    make_directories(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Flush to disk which names a directory holds."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def try_lock(handle: int) -> Literal["locked", "busy", "unsupported"]:
    """Lock an open file or directory for this process, without waiting."""
    try:
        # The kernel releases it with the process, however that ends.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "busy"
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return "unsupported"
        raise
    return "locked"


def _claim(path: Path, *, directory: bool) -> tuple[Path, int]:
    """Make a temporary file or directory beside `path`; return it, open and locked."""
    while True:
        temporary = _temporary(path)
        if directory:
            temporary.mkdir()
            try:
                handle = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
            except FileNotFoundError:
                continue  # Removed, as below.
        else:
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o666)
        # Until it is locked, another process may take it for an abandoned one.
        if try_lock(handle) != "busy" and _is_same(handle, temporary):
            return temporary, handle
        os.close(handle)


def _is_same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _remove_if_abandoned(path: Path, *, alone: bool) -> None:
    try:
        status = os.lstat(path)
        is_directory = stat.S_ISDIR(status.st_mode)
        if not (is_directory or stat.S_ISREG(status.st_mode)):
            path.unlink()  # Planted: a symlink, FIFO or device of such a name is never ours.
            return
        handle = os.open(path, (os.O_RDONLY if is_directory else os.O_RDWR) | _OPEN)
    except (FileNotFoundError, PermissionError):
        return  # Its writer has just renamed it, or it belongs to another user.
    try:
        locked = try_lock(handle)
        if (locked == "locked" or (locked == "unsupported" and alone)) and _is_same(handle, path):
            if is_directory:
                shutil.rmtree(path)
            else:
                path.unlink()
    except PermissionError:
        return
    finally:
        os.close(handle)


def _check_regular(status: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeFileError(_symlink(path, "file"))
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError(f"{path} is a {_kind(status)}, not a regular file: remove it")


def _check_directory(status: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeFileError(
            f"{_symlink(path, 'directory')}; to keep it on another disk, mount it there, as with "
            "mount --bind"
        )
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeFileError(f"{path} is a {_kind(status)}, not a directory: remove it")


def _check_size(size: int, most_bytes: int, path: Path) -> None:
    if size > most_bytes:
        raise UnsafeFileError(
            f"{path} is too large: {size:,} bytes, where at most {most_bytes:,} are expected"
        )


def _symlink(path: Path, kind: str) -> str:
    return (
        f"{path} is a symlink, and Headwise follows none inside a run or prepared data: "
        f"put the {kind} itself in its place"
    )


def _kind(status: os.stat_result) -> str:
    kinds = (
        (stat.S_ISDIR, "directory"),
        (stat.S_ISREG, "file"),
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
    )
    return next((name for test, name in kinds if test(status.st_mode)), "device")


def _new(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _replaced(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
