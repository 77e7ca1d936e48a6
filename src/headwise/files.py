"""Files that are whole or not there: written aside, flushed to disk, and only then renamed."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_file(path: Path, content: bytes) -> None:
    """Write a file of a directory that is still being made, and flush it to disk."""
    with path.open("wb") as file:
        file.write(content)
        flush(file)


def flush(file: BinaryIO) -> None:
    """Flush to disk what has been written to a file."""
    file.flush()
    os.fsync(file.fileno())


def replace_file(
    path: Path, content: bytes, *, prepare: Callable[[Path], None] = lambda _: None
) -> None:
    """Put a file in the place of another, or of none; readers see the one or the other, whole.

    `prepare` may create the new file under its temporary name, with the owner and mode it needs.
    """
    temporary = _temporary(path)
    try:
        prepare(temporary)
        write_file(temporary, content)
        temporary.rename(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_output(path: Path, content: bytes) -> None:
    """Write where somebody wants it: a file becomes whole or stays, a device or pipe is fed.

    A link stays, and what it points to is written. For files that nobody has named, such as those
    of a run directory, `replace_file` follows no link.
    """
    # /dev/stdout may lead to a file, but means whoever has it open.
    if path.exists() and (not path.is_file() or path.is_relative_to("/dev")):
        path.write_bytes(content)
    else:
        replace_file(path.resolve(), content)


def open_in_place(path: Path | str, flags: int) -> int:
    """Open a file of a directory that may come from anybody: itself, and without waiting.

    Not what a link points to, which may be anywhere, nor when somebody comes to a pipe's other end.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link", str(path)) from error
        raise


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield a directory to fill, which takes the name `path` when the block ends without an error.

    Whoever fills it flushes its files (`write_file`). Nothing is left of a block that fails; what
    a killed process left is removed by the next that makes the same directory.
    """
    temporary = _temporary(path)
    remove_abandoned(path.parent, path.name)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        sync_directory(temporary)
        temporary.rename(path)
        sync_directory(path.parent)
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)


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
    if path.exists():
        path.rename(replaced)
    new.rename(path)
    sync_directory(path.parent)
    if replaced.exists():
        remove_directory(replaced)


def restore_replaced(path: Path) -> None:
    """Put back a directory whose successor never came, and remove one that came too late."""
    replaced, new = _replaced(path), _new(path)
    if new.exists():
        remove_directory(new)
    if not replaced.exists():
        return
    if path.exists():
        remove_directory(replaced)
    else:
        replaced.rename(path)


def remove_directory(path: Path) -> None:
    """Remove a directory; its name is gone at once, so that it never stands for half of it."""
    if path.is_symlink():
        path.unlink()  # What it points to is somebody else's.
        return
    doomed = _temporary(path)
    remove_abandoned(path.parent, path.name)
    path.rename(doomed)
    shutil.rmtree(doomed)


def remove_abandoned(
    directory: Path, name: str | None = None, *, whoever_wrote: bool = False
) -> None:
    """Remove what processes that are no more were writing, under one name or under any.

    A process with our own number was another: in a container they all have the same.
    `whoever_wrote` is for a caller who knows that nobody else is writing there.
    """
    if not directory.is_dir():
        return
    pattern = re.compile(rf"\.{'.+' if name is None else re.escape(name)}\.(\d+)\.tmp")
    for path in directory.iterdir():
        match = pattern.fullmatch(path.name)
        if match and (whoever_wrote or not _is_another_alive(int(match[1]))):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def sync_directory(path: Path) -> None:
    """Flush to disk which names a directory holds."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _new(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _replaced(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _is_another_alive(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
