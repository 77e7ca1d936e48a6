"""Examples on disk: written once, then mapped into memory and read in any order.

A directory of shards holds, for each shard and each named stream (source, target), the values of
all its sequences one after the other and the offsets at which they start and end, and a manifest.
Values are token ids, or vectors of floats (a frame of sound, a patch of an image):

    manifest.json            format, streams, counts, and the SHA-256 of every other file
    00000.source.ids         uint16 or uint32, little-endian; or float32, `width` for a position
    00000.source.offsets     uint64, in positions, one more than there are sequences
    00000.target.ids         ...

The directory appears whole or not at all: it is written under a temporary name, every file is
flushed to disk, the manifest comes last, and then it is renamed.
"""

import hashlib
import json
import os
import shutil
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from headwise.errors import DataError
from headwise.files import (
    Folder,
    create_file,
    flush,
    new_directory,
    sync_directory,
    write_file,
)

FORMAT_VERSION = 1
SEQUENCES_PER_SHARD = 1_000_000

MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 4 << 20
"""Ten thousand shards. As objects in memory, JSON takes up to 24 times its bytes."""
_MOST_SEQUENCES = 1 << 24
"""Of a shard, in whatever version it was written."""
_CHUNK = 1 << 16
_ANY_SIZE = 1 << 62
"""The sizes of files are compared with what the manifest and the offsets say."""

_WIDEST = 1 << 20
"""Floats of one position."""

Values = NDArray[Any]
"""Ids [positions], or floats [positions, width]."""
Offsets = NDArray[np.uint64]
Packed = tuple[Values, NDArray[np.int64]]
"""The values of several sequences one after the other, and their lengths."""


@dataclass(frozen=True)
class Floats:
    """A stream of vectors of floats, `width` of them for each position."""

    width: int


def id_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest type that holds every id of a vocabulary."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


class ShardWriter:
    """Write sequences to a new directory, in bounded memory.

    Use it as a context manager: leaving the block makes the directory appear, leaving it by an
    exception leaves nothing behind.
    """

    def __init__(
        self,
        directory: Path,
        streams: Mapping[str, int | Floats],
        *,
        sequences_per_shard: int = SEQUENCES_PER_SHARD,
    ) -> None:
        """Prepare to write some streams: ids of a vocabulary's size, or floats.

        The directory must not exist yet.
        """
        if directory.exists():
            raise DataError(f"{directory} exists already: choose another name, or remove it")
        self._making = ExitStack()
        self._directory = directory
        self._dtypes = {
            name: np.dtype("<f4") if isinstance(kind, Floats) else id_dtype(kind)
            for name, kind in streams.items()
        }
        self._widths = {
            name: kind.width for name, kind in streams.items() if isinstance(kind, Floats)
        }
        self._sequences_per_shard = sequences_per_shard
        self._shards: list[int] = []
        self._tokens = dict.fromkeys(streams, 0)
        self._open: dict[str, _OpenStream] = {}
        self._digests: dict[str, str] = {}
        self.notes: dict[str, Any] = {}
        """What else the manifest is to say; the reader hands it back."""

    def __enter__(self) -> Self:
        self._temporary = self._making.enter_context(new_directory(self._directory))
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        with self._making:
            self._making.callback(self._close)
            if error is not None:
                raise error  # In here, so that nothing is left of the directory.
            self._finish()

    def _close(self) -> None:
        for stream in self._open.values():
            # Its bytes are being thrown away, and what went wrong is on its way up already.
            with suppress(OSError):
                stream.ids.close()

    def __len__(self) -> int:
        """Return how many sequences have been added to each stream."""
        return sum(self._shards)

    def add(self, sequences: Mapping[str, Packed]) -> None:
        """Append as many sequences to every stream: the values of all, and their lengths."""
        (count,) = {len(lengths) for _, lengths in sequences.values()}
        done = 0
        while done < count:
            if not self._shards or self._shards[-1] == self._sequences_per_shard:
                self._start_shard()
            take = min(count - done, self._sequences_per_shard - self._shards[-1])
            for name, (ids, lengths) in sequences.items():
                ends = np.cumsum(lengths, dtype=np.int64)
                start = int(ends[done - 1]) if done else 0
                end = int(ends[done + take - 1])
                part = np.ascontiguousarray(ids[start:end], dtype=self._dtypes[name])
                self._open[name].append(part, lengths[done : done + take])
                self._tokens[name] += end - start
            self._shards[-1] += take
            done += take

    def add_example(self, streams: Mapping[str, Sequence[int]]) -> None:
        """Append one sequence of ids to every stream."""
        self.add({k: (np.array(ids), np.array([len(ids)])) for k, ids in streams.items()})

    def _start_shard(self) -> None:
        self._end_shard()
        number = len(self._shards)
        self._shards.append(0)
        self._open = {
            name: _OpenStream(create_file(self._temporary / f"{number:05}.{name}.ids"))
            for name in self._dtypes
        }

    def _end_shard(self) -> None:
        number = len(self._shards) - 1
        for name, stream in self._open.items():
            flush(stream.ids)
            stream.ids.close()
            self._digests[f"{number:05}.{name}.ids"] = stream.digest.hexdigest()
            offsets = np.concatenate(stream.offsets).astype("<u8").tobytes()
            file_name = f"{number:05}.{name}.offsets"
            write_file(self._temporary / file_name, offsets)
            self._digests[file_name] = hashlib.sha256(offsets).hexdigest()
        self._open = {}

    def _finish(self) -> None:
        self._end_shard()
        manifest = {
            "format_version": FORMAT_VERSION,
            "shards": self._shards,
            "streams": {
                name: {
                    "dtype": dtype.str,
                    "tokens": self._tokens[name],
                    **({"width": self._widths[name]} if name in self._widths else {}),
                }
                for name, dtype in self._dtypes.items()
            },
            "sha256": self._digests,
            "notes": self.notes,
        }
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        write_file(self._temporary / MANIFEST, text.encode())


class _OpenStream:
    """One stream of the shard being written: its file, its digest so far, its offsets."""

    def __init__(self, ids: BinaryIO) -> None:
        self.ids = ids
        self.digest = hashlib.sha256()
        self.offsets = [np.zeros(1, dtype=np.uint64)]
        self._end = 0

    def append(self, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        raw = ids.tobytes()
        self.ids.write(raw)
        self.digest.update(raw)
        ends = self._end + np.cumsum(lengths, dtype=np.uint64)
        self.offsets.append(ends)
        self._end = int(ends[-1])


class TokenShards:
    """Read sequences by number from a directory of shards, through memory maps."""

    def __init__(self, directory: Path | Folder) -> None:
        """Open a directory; its manifest, sizes and offsets are checked, not its digests."""
        self._folder = Folder.of(directory)
        self.directory = directory = self._folder.path
        manifest = _load_manifest(self._folder)
        self.notes: dict[str, Any] = manifest["notes"]
        self._digests: dict[str, str] = manifest["sha256"]
        self._starts = [0, *np.cumsum(manifest["shards"]).tolist()]
        self._maps: dict[str, list[tuple[Values, Offsets]]] = {}
        self._sizes: dict[str, int] = {}
        for stream, about in manifest["streams"].items():
            dtype = np.dtype(about["dtype"])
            shards = [
                self._map_shard(f"{number:05}.{stream}", dtype, count, about.get("width"))
                for number, count in enumerate(manifest["shards"])
            ]
            self._maps[stream] = shards
            tokens = sum(int(offsets[-1]) for _, offsets in shards)
            if tokens != about["tokens"]:
                raise DataError(f"{directory}: {stream} has {tokens} tokens, not {about['tokens']}")

    def __len__(self) -> int:
        """Return the number of sequences in each stream."""
        return int(self._starts[-1])

    def sequence(self, stream: str, index: int) -> Values:
        """Return the values of one sequence, without copying them."""
        shard = bisect_right(self._starts, index) - 1
        ids, offsets = self._stream(stream)[shard]
        place = index - self._starts[shard]
        return ids[int(offsets[place]) : int(offsets[place + 1])]

    def checked_sequence(self, stream: str, index: int, vocab_size: int) -> Values:
        """Return the ids of one sequence, all of which a vocabulary has."""
        ids = self.sequence(stream, index)
        self._check_ids(stream, ids)
        if len(ids) and int(ids.max()) >= vocab_size:
            raise DataError(
                f"{self.directory}: {stream} {index} has id {ids.max()}, and the vocabulary has "
                f"{vocab_size:,} entries: it was cut into other subwords"
            )
        return ids

    def sequences(self, stream: str, indices: NDArray[np.int64]) -> Packed:
        """Return the values of several sequences one after the other, and their lengths."""
        maps = self._stream(stream)
        shards = np.searchsorted(self._starts, indices, side="right") - 1
        starts, lengths = np.empty_like(indices), np.empty_like(indices)
        present = np.unique(shards).tolist()
        for shard in present:
            here = shards == shard
            places = indices[here] - self._starts[shard]
            offsets = maps[shard][1]
            starts[here] = offsets[places]
            lengths[here] = offsets[places + 1] - offsets[places]
        # Where each id stands in its shard: its sequence's start there, and on from it.
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        owners = np.repeat(shards, lengths)
        values = np.empty((len(places), *maps[0][0].shape[1:]), dtype=maps[0][0].dtype)
        for shard in present:
            here = owners == shard
            values[here] = maps[shard][0][places[here]]
        return values, lengths

    def lengths(self, stream: str) -> NDArray[np.int64]:
        """Return the length of every sequence of a stream."""
        parts = [np.diff(offsets).astype(np.int64) for _, offsets in self._stream(stream)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def verify(self, vocab_sizes: Mapping[str, int] | None = None) -> None:
        """Read everything and raise DataError for the first file that is not as it was written.

        With the sizes of the vocabularies, an id that is not below its size is an error as well.
        """
        for name, expected in self._digests.items():
            with self._folder.open(name, self._sizes[name]) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                    raise DataError(f"{self.directory / name} has been changed: prepare it anew")
        for stream, size in (vocab_sizes or {}).items():
            for number, (ids, _) in enumerate(self._stream(stream)):
                self._check_ids(stream, ids)
                largest = max((int(ids[at : at + _CHUNK].max()) for at in _starts(ids)), default=0)
                if largest >= size:
                    raise DataError(
                        f"{self.directory / f'{number:05}.{stream}.ids'}: has id {largest}, and "
                        f"the vocabulary has {size:,} entries: it was cut into other subwords"
                    )

    def copy_to(self, directory: Path) -> None:
        """Copy all files, as they are, to a new directory within one that is being made."""
        directory.mkdir()
        sizes = {**self._sizes, MANIFEST: MOST_MANIFEST_BYTES}
        for name, size in sizes.items():
            with self._folder.open(name, size) as source, create_file(directory / name) as file:
                shutil.copyfileobj(source, file)
                flush(file)
        sync_directory(directory)

    def _check_ids(self, stream: str, values: Values) -> None:
        if values.dtype.kind == "f":
            raise DataError(f"{self.directory}: {stream} has floats, not ids: prepare it anew")

    def _stream(self, name: str) -> list[tuple[Values, Offsets]]:
        if name not in self._maps:
            raise DataError(f"{self.directory}: has no stream {name!r}: prepare it anew")
        return self._maps[name]

    def _map_shard(
        self, name: str, dtype: np.dtype[Any], count: int, width: int | None
    ) -> tuple[Values, Offsets]:
        offsets = self._mapped(f"{name}.offsets", np.dtype("<u8"), count + 1)
        if int(offsets[0]) != 0 or not _is_sorted(offsets):
            raise DataError(
                f"{self.directory / name}.offsets: damaged: the offsets do not rise from 0: "
                "prepare it anew"
            )
        values = self._mapped(f"{name}.ids", dtype, int(offsets[-1]) * (width or 1))
        return values if width is None else values.reshape(-1, width), offsets

    def _mapped(self, name: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        path, expected = self.directory / name, count * dtype.itemsize
        self._sizes[name] = expected
        try:
            with self._folder.open(name, _ANY_SIZE) as file:
                size = os.fstat(file.fileno()).st_size
                if size != expected:
                    raise DataError(f"{path} has {size} bytes, not {expected}: prepare it anew")
                if count == 0:
                    return np.zeros(0, dtype=dtype)  # An empty file cannot be mapped.
                # A plain array over the map: np.memmap's own indexing is several times slower.
                return np.asarray(np.memmap(file, dtype=dtype, mode="r"))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}: prepare it anew") from error


def _is_sorted(offsets: Offsets) -> bool:
    """Return whether no offset is less than the one before; in pieces, to take little memory."""
    earlier, later = offsets[:-1], offsets[1:]
    return all(
        bool((earlier[at : at + _CHUNK] <= later[at : at + _CHUNK]).all())
        for at in _starts(earlier)
    )


def _starts(array: NDArray[Any]) -> range:
    """Return where the pieces of an array start that are looked at one at a time."""
    return range(0, len(array), _CHUNK)


def _load_manifest(folder: Folder) -> dict[str, Any]:
    path = folder.path / MANIFEST
    try:
        manifest = folder.read_json(MANIFEST, MOST_MANIFEST_BYTES)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}: is it prepared data?"
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is not a manifest: {error}: prepare it anew") from error
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path}: format_version is {version!r}, and this Headwise reads {FORMAT_VERSION}: "
            "prepare it anew, or upgrade Headwise"
        )
    if not _is_well_formed(manifest):
        raise DataError(f"{path} is not a manifest of shards: prepare it anew")
    return dict(manifest)


def _is_well_formed(manifest: dict[str, Any]) -> bool:
    """Check the manifest's form; a stream's name becomes a file's name and must not be a path."""
    shards, streams = manifest.get("shards"), manifest.get("streams")
    digests = manifest.get("sha256")
    return (
        isinstance(shards, list)
        and all(type(count) is int and 0 < count <= _MOST_SEQUENCES for count in shards)
        and isinstance(streams, dict)
        and all(
            name.isalnum()
            and isinstance(about, dict)
            and type(about.get("tokens")) is int
            and _is_known_kind(about.get("dtype"), about.get("width"))
            for name, about in streams.items()
        )
        and isinstance(digests, dict)
        and all(isinstance(digest, str) for digest in digests.values())
        and set(digests)
        == {
            f"{number:05}.{name}.{part}"
            for number in range(len(shards))
            for name in streams
            for part in ("ids", "offsets")
        }
        and isinstance(manifest.get("notes"), dict)
    )


def _is_known_kind(dtype: object, width: object) -> bool:
    if dtype == "<f4":
        return type(width) is int and 0 < width <= _WIDEST
    return dtype in ("<u2", "<u4") and width is None
