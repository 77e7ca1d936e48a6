"""The lines of a file, plain or compressed, read in bounded memory whatever the file holds.

A line may be `LONGEST_LINE` bytes long. A compressed file may unpack to `MOST_EXPANSION` times its
size, once more than `_EXPANSION_FROM` bytes have come out of it, and its decoder may use a window
of 2**_WINDOW_LOG bytes. What exceeds a limit is a DataError that names the file and the line.
"""

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from headwise.errors import DataError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LONGEST_LINE = 1 << 20
"""Bytes of a line, its line feed not counted. The longest lines of real corpora are a tenth of it;
a line beyond it comes from a file that is not text, or not one sentence a line."""

MOST_EXPANSION = 200
"""How many times its compressed size a file may be. Text shrinks to a third or a tenth; gzip can do
1,032 at most, zstd and xz more than 10,000, and only with content that repeats endlessly."""

_EXPANSION_FROM = 16 << 20
"""Bytes that may come out of a compressed file before its expansion is looked at: a small file of
one sentence, repeated, is harmless."""

_WINDOW_LOG = 27
"""128 MiB, the window of `zstd --ultra -22` and twice that of `xz -9`."""

_XZ_MEMORY = (1 << _WINDOW_LOG) + (16 << 20)
"""What an .xz decoder may allocate: the window, and some MiB for itself."""

_CHUNK = 64 << 10


class _ExpansionError(Exception):
    """A compressed file unpacks to far more than text would."""


_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, _ExpansionError)


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield a file's lines without their line feeds; files ending in .gz, .xz or .zst unpacked.

    A file that cannot be read, or a line that is too long, is a DataError with file and line.
    """
    number = 0
    try:
        with _opened(path) as file:
            for lines in _lines_by_chunk(file, str(path)):
                yield from lines
                number += len(lines)
    except _BROKEN as error:
        where = f"{path}: " if number == 0 else f"{path}, after line {number:,}: "
        raise DataError(f"{where}cannot be read: {_reason(error)}") from error


def stream_lines(stream: io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """Yield a stream's lines without their line feeds; one that is too long is a DataError."""
    for lines in _lines_by_chunk(stream, name):
        yield from lines


def _lines_by_chunk(stream: io.BufferedIOBase, name: str) -> Iterator[list[bytes]]:
    """Yield the lines that end in each chunk, as soon as it is there: faster than line by line."""
    number, rest = 0, b""
    while chunk := stream.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        longest = lines[0] if lines else rest  # All others are shorter than a chunk.
        if len(longest) > LONGEST_LINE:
            raise DataError(
                f"{name}:{number + 1}: longer than the {LONGEST_LINE:,} bytes that a line may "
                "have: cut it into shorter lines, or remove it"
            )
        yield lines
        number += len(lines)
    if rest:  # The last line need not end in a line feed.
        yield [rest]


def _reason(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, lzma.LZMAError | zstd.ZstdError) and "emory" in reason:
        # "Memory usage limit exceeded", "Frame requires too much memory for decoding".
        return (
            f"its compression needs a window of over {1 << (_WINDOW_LOG - 20)} MiB: "
            "unpack it first, or compress it anew with a smaller one"
        )
    return reason


def _opened(path: Path) -> io.BufferedReader:
    if path.suffix not in (".gz", ".xz", ".zst"):
        return path.open("rb")
    return io.BufferedReader(_Unpacked(path), _CHUNK)


class _Unpacked(io.RawIOBase):
    """What a compressed file unpacks to, as long as that is not too many times its size."""

    def __init__(self, path: Path) -> None:
        self._packed = _Counted(path.open("rb"))
        self._content = _decompressed(self._packed, path.suffix)
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._content.read1(len(buffer))  # Not more: an error would lose what it has.
        self._size += len(content)
        packed = self._packed.count
        if self._size > _EXPANSION_FROM and self._size > MOST_EXPANSION * packed:
            raise _ExpansionError(
                f"{packed:,} bytes of it unpack to more than {MOST_EXPANSION} times as many, "
                "as no text does: if it is right, unpack it first"
            )
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._packed.close()
        super().close()


class _Counted:
    """A file that counts the bytes read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self.count += len(content)
        return content

    def close(self) -> None:
        self._file.close()


class _HasRead1(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def _decompressed(packed: _Counted, suffix: str) -> _HasRead1:
    match suffix:
        case ".gz":
            return gzip.GzipFile(fileobj=cast("Any", packed), mode="rb")
        case ".xz":
            return _Xz(packed)
        case _:
            window_log_max = int(zstd.DecompressionParameter.window_log_max)
            return zstd.ZstdFile(cast("Any", packed), options={window_log_max: _WINDOW_LOG})


class _Xz:
    """A file of .xz streams, one after the other, as `xz -d` reads it.

    `lzma.open` takes whatever follows a stream and is none, a damaged one too, for the end.
    """

    def __init__(self, packed: _Counted) -> None:
        self._packed = packed
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        self._is_between = False  # Whether one stream has ended, and none begun since.

    def read1(self, size: int) -> bytes:
        content = b""
        while not content:
            packed = b""
            if self._stream.eof:
                packed = self._stream.unused_data
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
                self._is_between = True
            if not packed and self._stream.needs_input:
                packed = self._packed.read(io.DEFAULT_BUFFER_SIZE)
                if not packed:
                    if self._is_between:
                        return b""
                    raise EOFError("the file ends in the middle of its compressed text")
            if self._is_between:
                packed = packed.lstrip(b"\0")  # There may be zeros between streams.
                if not packed:
                    continue
                self._is_between = False
            content = self._stream.decompress(packed, size)
        return content
