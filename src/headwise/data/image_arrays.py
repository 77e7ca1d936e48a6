"""Images with labels in one file: IDX, as MNIST comes, and NPZ, as NumPy saves.

A file may come from a stranger: what its headers promise is checked against what it can hold before
memory is allocated, and nothing is unpickled.
"""

import gzip
import io
import math
import os
import re
import struct
import zlib
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from headwise.data.images import open_regular
from headwise.errors import DataError
from headwise.visible import visible

MOST_BYTES = 8 << 30
"""Bytes of an array, unpacked."""

_MOST_DEFLATED = 1032
"""How many times its compressed size deflate can make of a file."""

_CHUNK = 1 << 20

_IMAGES = ("images", "x", "X")
_LABELS = ("labels", "y")

_NAME = re.compile(r".+\.npz|.*[-.]idx[34]-ubyte(\.gz)?")
_IDX_NAME = re.compile(r"(.*)images([-.])idx[34](-ubyte(?:\.gz)?)")

_HEADER = re.compile(
    rb"\{ *'descr': *'([<>|=]?[biufcSUO]\d{0,9})', *'fortran_order': *(?:True|False), *"
    rb"'shape': *\(((?:\d{1,18}, *)*\d{0,18})\),? *\} *\n?"
)
"""The header of an array of plain values. NumPy would evaluate any literal: a nested one can be a
MemoryError."""

_MOST_HEADER_BYTES = 10_000

_BROKEN_ZIP = (BadZipFile, OSError, EOFError, RuntimeError, ValueError, struct.error, zlib.error)
"""What zipfile and numpy.lib.format raise; RuntimeError if a member is encrypted."""


class ImageArrays(NamedTuple):
    """Images and the class of each."""

    images: NDArray[np.uint8]
    """[N, H, W], or [N, H, W, C] with C = 1 or 3."""
    labels: tuple[str, ...]


def is_image_arrays(path: Path) -> bool:
    """Return whether a file's name is that of an NPZ file, or of images in an IDX file."""
    return _NAME.fullmatch(path.name) is not None


def read_image_arrays(path: Path) -> ImageArrays:
    """Read the images and labels of an NPZ file, or of an IDX file and the one beside it.

    An IDX file has unsigned bytes, and may be compressed with gzip. Its labels are in the file that
    has "labels" and "idx1" in its name instead of "images" and "idx3". An NPZ file has an array
    `images`, `x` or `X` of uint8, or of floats from 0 to 1 or from 0 to 255, and an array `labels`
    or `y` of whole numbers or strings. Channels are the last axis of both.
    """
    return _read_npz(path) if path.suffix == ".npz" else _read_idx_pair(path)


def _read_idx_pair(path: Path) -> ImageArrays:
    match = _IDX_NAME.fullmatch(path.name)
    if match is None:
        raise DataError(
            f"{path}: has no 'images' before 'idx' in its name, so that nothing says where its "
            "labels are: name them like train-images-idx3-ubyte and train-labels-idx1-ubyte"
        )
    before, dash, after = match.groups()
    labels_path = path.with_name(f"{before}labels{dash}idx1{after}")
    if os.path.exists(path) and not os.path.exists(labels_path):
        raise DataError(f"{path}: its labels are missing: there is no {labels_path}")
    images = _read_idx(path, "images")
    labels = _read_idx(labels_path, "labels")
    if len(images) != len(labels):
        raise DataError(
            f"{path}: has {len(images):,} images, but {labels_path} has {len(labels):,} labels: "
            "there must be one for each image"
        )
    return ImageArrays(images, tuple(map(str, labels.tolist())))


def _read_idx(path: Path, kind: Literal["images", "labels"]) -> NDArray[np.uint8]:
    with open_regular(path, str(path)) as packed:
        size = os.fstat(packed.fileno()).st_size
        file: io.BufferedIOBase = packed
        if path.suffix == ".gz":
            file = gzip.GzipFile(fileobj=packed)
            size *= _MOST_DEFLATED
        try:
            shape = _idx_shape(file, path, kind)
            if math.prod(shape) > min(size, MOST_BYTES):
                raise DataError(
                    f"{path}: its header promises {math.prod(shape):,} bytes, more than the file "
                    "can hold or can be read: get a whole copy, or split it"
                )
            content = np.empty(math.prod(shape), np.uint8)
            _fill(content, file, path)
            if file.read(1):
                raise DataError(f"{path}: longer than its header says: get another copy")
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path}: cannot be read: {error}: get another copy") from error
    return content.reshape(shape)


def _idx_shape(
    file: io.BufferedIOBase, path: Path, kind: Literal["images", "labels"]
) -> tuple[int, ...]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise DataError(f"{path}: not an IDX file: it does not begin with 0x0000")
    if magic[2] != 8:
        raise DataError(f"{path}: an IDX file of other values than unsigned bytes: convert it")
    axes = (3, 4) if kind == "images" else (1,)
    if magic[3] not in axes:
        raise DataError(
            f"{path}: an IDX file of {magic[3]} axes, but {kind} have {' or '.join(map(str, axes))}"
        )
    header = file.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        raise DataError(f"{path}: cut off within its header: get a whole copy")
    shape = struct.unpack(f">{magic[3]}I", header)
    if kind == "images":
        _check_shape(shape, str(path))
    return shape


def _fill(content: NDArray[np.uint8], file: io.BufferedIOBase, path: Path) -> None:
    view = content.data
    filled = 0
    while filled < len(view):
        read = file.readinto(view[filled : filled + _CHUNK])
        if not read:
            raise DataError(
                f"{path}: cut off: its header promises {len(view):,} bytes, and it has {filled:,}: "
                "get a whole copy"
            )
        filled += read


def _check_shape(shape: tuple[int, ...], place: str) -> None:
    if len(shape) not in (3, 4) or min(shape) < 1 or shape[3:] not in ((), (1,), (3,)):
        raise DataError(
            f"{place}: images of shape {str(shape)[:100]}, but it must be [images, height, width] "
            "or [images, height, width, channels], with 1 or 3 channels, and none of them 0"
        )


def _read_npz(path: Path) -> ImageArrays:
    with open_regular(path, str(path)) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with ZipFile(file) as archive:
                images = _Member.of(archive, size, _IMAGES, path)
                labels = _Member.of(archive, size, _LABELS, path)
                _check_shape(images.shape, images.place)
                if images.dtype != np.uint8 and images.dtype.kind != "f":
                    raise DataError(
                        f"{images.place}: images of {images.dtype}, but they must be uint8, or "
                        "floats from 0 to 1 or from 0 to 255: convert them"
                    )
                if labels.dtype.kind not in "iuUS":
                    raise DataError(
                        f"{labels.place}: labels of {labels.dtype}, but they must be whole numbers "
                        "or strings: convert them"
                    )
                if labels.shape != images.shape[:1]:
                    raise DataError(
                        f"{labels.place}: of shape {str(labels.shape)[:100]}, but there must be "
                        f"one label for each of {images.shape[0]:,} images: {images.shape[:1]}"
                    )
                return ImageArrays(
                    _bytes(images.read(archive), images.place),
                    _strings(labels.read(archive), labels.place),
                )
        except _BROKEN_ZIP as error:
            reason = visible(str(error))[:200] or type(error).__name__
            raise DataError(f"{path}: cannot be read as NPZ: {reason}: save it again") from error


class _Member(NamedTuple):
    """An array of an NPZ file, as its header describes it."""

    info: ZipInfo
    place: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, archive: ZipFile, size: int, names: tuple[str, ...], path: Path) -> "_Member":
        """Find the one array that has one of these names, in an archive of `size` bytes."""
        infos = [info for info in archive.infolist() if info.filename.removesuffix(".npy") in names]
        if len(infos) != 1:
            there = ", ".join(repr(name.removesuffix(".npy")) for name in archive.namelist()[:10])
            raise DataError(
                f"{path}: must have exactly one array named {' or '.join(names)}: "
                f"there is {visible(there)[:300] or 'none'}"
            )
        (info,) = infos
        place = f"{path}, {info.filename}"
        if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise DataError(f"{place}: compressed in a way that NumPy does not write: save it anew")
        if info.file_size > min(MOST_BYTES, min(info.compress_size, size) * _MOST_DEFLATED):
            raise DataError(
                f"{place}: the file's directory promises {info.file_size:,} bytes, more than it "
                "can hold or can be read: get a whole copy, or split it"
            )
        return cls(info, place, *_npy_header(archive, info, place))

    def read(self, archive: ZipFile) -> NDArray[Any]:
        with archive.open(self.info) as member:
            array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        return array


def _npy_header(
    archive: ZipFile, info: ZipInfo, place: str
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    with archive.open(info) as member:
        magic = member.read(8)
        # NumPy writes version 3 for names of columns only.
        length_format = {b"\x93NUMPY\1\0": "<H", b"\x93NUMPY\2\0": "<I"}.get(magic, "")
        length_bytes = member.read(struct.calcsize(length_format))
        (length,) = struct.unpack(length_format, length_bytes) if length_format else (0,)
        header = member.read(min(length, _MOST_HEADER_BYTES))
    match = _HEADER.fullmatch(header)
    try:
        dtype = np.dtype(match[1].decode()) if match else None
    except TypeError:
        dtype = None
    if match is None or dtype is None:
        raise DataError(f"{place}: not an array of numbers or strings: save it again")
    if dtype.hasobject:
        raise DataError(
            f"{place}: holds Python objects, and nothing is unpickled: "
            "save an array of numbers or strings"
        )
    shape = tuple(int(side) for side in match[2].replace(b",", b" ").split())
    header_bytes = len(magic) + len(length_bytes) + len(header)
    if header_bytes + math.prod(shape) * dtype.itemsize != info.file_size:
        raise DataError(
            f"{place}: its header promises another size than its {info.file_size:,} bytes: "
            "get another copy"
        )
    return dtype, shape


def _bytes(images: NDArray[Any], place: str) -> NDArray[np.uint8]:
    """Return images as bytes: floats up to 1 are scaled to 255, others rounded."""
    if images.dtype == np.uint8:
        return np.ascontiguousarray(images)
    low, high = images.min(), images.max()
    if not (low >= 0 and high <= 255):  # Nor are NaNs.
        raise DataError(
            f"{place}: floats from {low:g} to {high:g}, but they must be from 0 to 1 or from 0 to "
            "255: scale them"
        )
    scale = np.float32(255 if high <= 1 else 1)
    scaled = np.empty(images.shape, np.uint8)
    for image, target in zip(images, scaled, strict=True):  # One by one, to save memory.
        target[...] = np.rint(image * scale)
    return scaled


def _strings(labels: NDArray[Any], place: str) -> tuple[str, ...]:
    if labels.dtype.kind == "U":
        # Before there are strings: NumPy crashes on what is no character.
        points = np.frombuffer(labels.tobytes(), f"{labels.dtype.byteorder}u4")
        if np.any((points > 0x10FFFF) | (points >> 11 == 0xD800 >> 11)):
            raise DataError(f"{place}: has labels that are not Unicode text: correct them")
    if labels.dtype.kind == "S":
        try:
            return tuple(label.decode() for label in labels.tolist())
        except UnicodeDecodeError as error:
            raise DataError(f"{place}: has labels that are not UTF-8: correct them") from error
    return tuple(map(str, labels.tolist()))
