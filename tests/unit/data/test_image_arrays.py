"""Images with labels in IDX and NPZ files: what is read, and what is refused before it is."""

import gzip
import io
import os
import random
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headwise.data import image_arrays
from headwise.data.image_arrays import is_image_arrays, read_image_arrays
from headwise.errors import DataError

IMAGES = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5) * 8
COLOURS = np.arange(2 * 3 * 5 * 3, dtype=np.uint8).reshape(2, 3, 5, 3)
LABELS = np.array([7, 0])


def idx(values: NDArray[np.uint8], kind: int = 8) -> bytes:
    shape = values.shape
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape) + values.tobytes()


IMAGES_IDX, LABELS_IDX = idx(IMAGES), idx(LABELS.astype(np.uint8))


@pytest.fixture
def write_idx(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of images and one of labels, and return the first."""

    def write(images: bytes = IMAGES_IDX, labels: bytes = LABELS_IDX, suffix: str = "") -> Path:
        path = tmp_path / f"train-images-idx3-ubyte{suffix}"
        path.write_bytes(images)
        path.with_name(f"train-labels-idx1-ubyte{suffix}").write_bytes(labels)
        return path

    return write


@pytest.fixture
def write_npz(tmp_path: Path) -> Callable[..., Path]:
    def write(save: Any = np.savez, **arrays: Any) -> Path:
        save(tmp_path / "a.npz", **arrays)
        return tmp_path / "a.npz"

    return write


@pytest.fixture
def write_zip(tmp_path: Path) -> Callable[..., Path]:
    """Write an NPZ file of any content; `how` is the compression of its members."""

    def write(how: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
        with zipfile.ZipFile(tmp_path / "a.npz", "w", how) as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)
        return tmp_path / "a.npz"

    return write


Write = Callable[..., Path]


def npy(values: Any, header: str | None = None) -> bytes:
    """Return an array as NumPy saves it, with another header if one is given."""
    file = io.BytesIO()
    np.save(file, values)
    if header is None:
        return file.getvalue()
    line = f"{header}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(line)) + line + np.asarray(values).tobytes()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mnist.npz", True),
        ("train-images-idx3-ubyte", True),
        ("train-images-idx3-ubyte.gz", True),
        ("train-images.idx3-ubyte", True),
        ("colours-images-idx4-ubyte.gz", True),
        ("train-labels-idx1-ubyte", False),
        ("train-images-idx3-ubyte.xz", False),
        ("train-images-idx3-ubyte.txt", False),
        ("images.npy", False),
        (".npz", False),
        ("table.csv", False),
    ],
)
def test_files_are_known_by_their_name(name: str, expected: bool) -> None:
    assert is_image_arrays(Path("data") / name) is expected


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
        ("t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"),
        ("images-of-images-idx3-ubyte", "images-of-labels-idx1-ubyte"),
        ("images-idx4-ubyte", "labels-idx1-ubyte"),
    ],
)
def test_idx_files_are_read_in_pairs(tmp_path: Path, images: str, labels: str) -> None:
    pack = gzip.compress if images.endswith(".gz") else bytes
    values = COLOURS if "idx4" in images else IMAGES
    (tmp_path / images).write_bytes(pack(idx(values)))
    (tmp_path / labels).write_bytes(pack(LABELS_IDX))
    found = read_image_arrays(tmp_path / images)
    np.testing.assert_array_equal(found.images, values)
    assert found.images.dtype == np.uint8
    assert found.labels == ("7", "0")


def test_the_smallest_idx_file(write_idx: Write) -> None:
    path = write_idx(b"\0\0\x08\x03\0\0\0\1\0\0\0\1\0\0\0\1\xc8", b"\0\0\x08\x01\0\0\0\1\x03")
    found = read_image_arrays(path)
    assert found.images.tolist() == [[[200]]]
    assert found.labels == ("3",)


def header(*shape: int) -> bytes:
    return idx(np.zeros(shape, np.uint8))[: 4 + 4 * len(shape)]


HUGE = struct.pack(">4B3I", 0, 0, 8, 3, 1024, 1024, 1024)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (b"", "not an IDX file: it does not begin with 0x0000"),
        (b"\x89PNG\r\n", "not an IDX file"),
        (idx(IMAGES, kind=0x0D), "an IDX file of other values than unsigned bytes: convert it"),
        (LABELS_IDX, "an IDX file of 1 axes, but images have 3 or 4"),
        (IMAGES_IDX[:10], "cut off within its header"),
        (HUGE, "its header promises 1,073,741,824 bytes, more than the file can hold"),
        (header(2, 3, 0), r"images of shape \(2, 3, 0\), but it must be \[images, height, width\]"),
        (header(0, 3, 5), r"images of shape \(0, 3, 5\)"),
        (idx(COLOURS.transpose(0, 3, 1, 2)), r"images of shape \(2, 3, 3, 5\), .* 1 or 3 channels"),
        (IMAGES_IDX[:-1], "cut off: its header promises 30 bytes, and it has 29: get a whole copy"),
        (IMAGES_IDX + b"\0", "longer than its header says: get another copy"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_faults(write_idx: Write, images: bytes, message: str, suffix: str) -> None:
    pack = gzip.compress if suffix else bytes
    path = write_idx(pack(images), pack(LABELS_IDX), suffix)
    with pytest.raises(DataError, match=f"^{path}: {message}"):
        read_image_arrays(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda packed: IMAGES_IDX, "cannot be read: Not a gzipped file"),
        (lambda packed: packed[:-12], "cannot be read: Compressed file ended before"),
        (lambda packed: packed[:-8] + b"\0" * 8, "cannot be read: CRC check failed"),
        (lambda packed: packed[:12] + b"\xff" * 9 + packed[21:], "cannot be read: Error -3"),
    ],
)
def test_damaged_gzip_streams(
    write_idx: Write, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = write_idx(damage(gzip.compress(IMAGES_IDX)), gzip.compress(LABELS_IDX), ".gz")
    with pytest.raises(DataError, match=f"^{path}: {message}"):
        read_image_arrays(path)


def test_a_gzip_bomb_is_not_unpacked(write_idx: Write) -> None:
    bomb = gzip.compress(IMAGES_IDX + bytes(20 << 20))
    path = write_idx(bomb, gzip.compress(LABELS_IDX), ".gz")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="longer than its header says"):
            read_image_arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


# 5 KB unpack to 5 MB of zeros. The header promises a few more, yet not more than it might be.
def test_gzip_streams_that_are_too_short(write_idx: Write) -> None:
    start = struct.pack(">4B3I", 0, 0, 8, 3, 1, 1, (5 << 20) + 20)
    path = write_idx(gzip.compress(start + bytes(5 << 20)), gzip.compress(LABELS_IDX), ".gz")
    with pytest.raises(DataError, match="promises 5,242,900 bytes, and it has 5,242,880: get a w"):
        read_image_arrays(path)


def test_more_than_the_most_bytes_is_refused(
    write_idx: Write, write_npz: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_arrays, "MOST_BYTES", 29)
    with pytest.raises(DataError, match="promises 30 bytes, more than the file can hold or can be"):
        read_image_arrays(write_idx())
    with pytest.raises(DataError, match=r"images.npy: the file's directory promises 158 bytes"):
        read_image_arrays(write_npz(images=IMAGES, labels=LABELS))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (idx(np.zeros(3, np.uint8)), "images-idx3-ubyte: has 2 images, but .* has 3 labels"),
        (IMAGES_IDX, "labels-idx1-ubyte: an IDX file of 3 axes, but labels have 1"),
        (LABELS_IDX[:-1], "labels-idx1-ubyte: .* promises 2 bytes, and it has 1|its header promis"),
        (LABELS_IDX + b"\0", "labels-idx1-ubyte: longer than its header says"),
    ],
)
def test_faults_of_the_labels(write_idx: Write, labels: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_image_arrays(write_idx(labels=labels))


def test_the_name_of_missing_labels_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    with pytest.raises(DataError, match=f"^{path}: cannot be read: No such file"):
        read_image_arrays(path)
    path.write_bytes(gzip.compress(IMAGES_IDX))
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    with pytest.raises(DataError, match=f"^{path}: its labels are missing: there is no {labels}$"):
        read_image_arrays(path)


def test_a_name_without_images_tells_nothing_of_the_labels(tmp_path: Path) -> None:
    path = tmp_path / "train-idx3-ubyte"
    path.write_bytes(IMAGES_IDX)
    with pytest.raises(DataError, match=f"^{path}: has no 'images' before 'idx' in"):
        read_image_arrays(path)


@pytest.mark.parametrize("name", ["a-images-idx3-ubyte", "a.npz"])
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(LABELS_IDX)
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=f"^{tmp_path / name}: a device, FIFO or socket"):
        read_image_arrays(tmp_path / name)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("images", ["images", "x", "X"])
@pytest.mark.parametrize("labels", ["labels", "y"])
def test_npz_files_are_read(write_npz: Write, save: Any, images: str, labels: str) -> None:
    path = write_npz(save, **{images: COLOURS, labels: LABELS, "names": np.array(["a"])})
    found = read_image_arrays(path)
    np.testing.assert_array_equal(found.images, COLOURS)
    assert found.labels == ("7", "0")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0.0, 1.0, 0.5, 0.1]], [[0, 255, 128, 26]]),  # 127.5 and 25.5, rounded to even
        ([[0.0, 1.0, 255.0, 99.6]], [[0, 1, 255, 100]]),
        ([[0.0, 0.0, 0.0, 0.0]], [[0, 0, 0, 0]]),
        ([[1.0, 1.0, 1.0, 1.0]], [[255, 255, 255, 255]]),
    ],
)
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
def test_floats_are_scaled(
    write_npz: Write, values: list[list[float]], expected: list[list[int]], dtype: str
) -> None:
    path = write_npz(x=np.array([values], dtype), y=np.array([1]))
    images = read_image_arrays(path).images
    assert images.dtype == np.uint8
    assert np.abs(images[0].astype(int) - expected).max() <= (dtype == "<f2")  # 0.1 is inexact.


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([-1, 300], ">i8"), ("-1", "300")),
        (np.array([0, 255], np.uint8), ("0", "255")),
        (np.array(["cat", "Bär 🐻"]), ("cat", "Bär 🐻")),
        (np.array(["cat", "Bär 🐻"]).astype(">U9"), ("cat", "Bär 🐻")),
        (np.array([b"cat", "Bär".encode()]), ("cat", "Bär")),
    ],
)
def test_labels_become_strings(write_npz: Write, labels: Any, expected: tuple[str, ...]) -> None:
    assert read_image_arrays(write_npz(x=IMAGES, y=labels)).labels == expected


def test_arrays_in_the_order_of_fortran(write_npz: Write) -> None:
    path = write_npz(x=np.asfortranarray(COLOURS), y=LABELS)
    images = read_image_arrays(path).images
    np.testing.assert_array_equal(images, COLOURS)
    assert images.flags.c_contiguous


NAN = np.where(IMAGES == 8, np.nan, IMAGES / 255)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "must have exactly one array named images or x or X: there is none"),
        ({"x": IMAGES}, "must have exactly one array named labels or y: there is 'x'"),
        (
            {"x_train": IMAGES, "y_train": LABELS},
            "must have exactly one array named images or x or X: there is 'x_train', 'y_train'",
        ),
        (
            {"x": IMAGES, "X": IMAGES, "y": LABELS},
            "must have exactly one .*: there is 'x', 'X', 'y'",
        ),
        (
            {"x": IMAGES, "y": LABELS, "labels": LABELS},
            "must have exactly one array named labels or y",
        ),
        ({"x": IMAGES.astype(int), "y": LABELS}, "x.npy: images of int64, but they must be uint8"),
        ({"x": IMAGES > 9, "y": LABELS}, "x.npy: images of bool, but they must be uint8"),
        ({"x": IMAGES.reshape(2, 15), "y": LABELS}, r"x.npy: images of shape \(2, 15\), but it m"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, r"x.npy: images of shape \(0, 3, 5\), but it must be"),
        (
            {"x": COLOURS[..., :2], "y": LABELS},
            r"x.npy: images of shape \(2, 3, 5, 2\), .* 1 or 3 ch",
        ),
        ({"x": IMAGES * -0.1, "y": LABELS}, "x.npy: floats from -23.2 to -0, but they must be"),
        ({"x": IMAGES * 2.0, "y": LABELS}, "x.npy: floats from 0 to 464, but they must be from 0"),
        ({"x": NAN, "y": LABELS}, "x.npy: floats from nan to nan, but they must be from 0 to 1"),
        ({"x": np.full((2, 1, 1), np.inf), "y": LABELS}, "x.npy: floats from inf to inf"),
        ({"x": IMAGES, "y": LABELS / 2}, "y.npy: labels of float64, but they must be whole numb"),
        ({"x": IMAGES, "y": LABELS > 0}, "y.npy: labels of bool, but they must be whole numbers"),
        ({"x": IMAGES, "y": np.array([1, 2, 3])}, r"y.npy: of shape \(3,\), but .* 2 images: \(2,"),
        ({"x": IMAGES, "y": np.eye(2, dtype=int)}, r"y.npy: of shape \(2, 2\), but there must be"),
        ({"x": IMAGES, "y": np.array([b"a", b"\xff"])}, "y.npy: has labels that are not UTF-8"),
        ({"x": IMAGES, "y": np.array(["a", "\ud800"])}, "y.npy: has labels that are not Unicode"),
        (
            {"x": IMAGES, "y": np.array([1, 0x110000], np.uint32).view("U1")},
            "y.npy: has labels that are not Unicode text: correct them",
        ),
        ({"x": IMAGES, "y": np.array([1, None])}, "y.npy: holds Python objects, and nothing is un"),
        ({"x": np.array([[[None]]]), "y": LABELS}, "x.npy: holds Python objects, and nothing is"),
        (
            {"x": np.zeros((2, 3, 5), [("red", "u1")]), "y": LABELS},
            "x.npy: not an array of numbers or strings: save it again",
        ),
    ],
)
def test_npz_faults(write_npz: Write, arrays: dict[str, Any], message: str) -> None:
    path = write_npz(**arrays)
    with pytest.raises(DataError, match=f"^{path}(: |, ){message}"):
        read_image_arrays(path)


NORMAL = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 5), }"


def test_a_header_made_by_hand_is_read(write_zip: Write) -> None:
    for text in (NORMAL, NORMAL.replace(" ", ""), NORMAL.replace("5), ", "5)") + " " * 99):
        path = write_zip(x=npy(IMAGES, text), y=npy(LABELS))
        np.testing.assert_array_equal(read_image_arrays(path).images, IMAGES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            NORMAL.replace("(2, 3, 5)", "(9, 3, 5)"),
            r"its header promises another size than its \d+",
        ),
        (NORMAL.replace("(2, 3, 5)", f"({10**17}, 10, 1)"), "its header promises another size"),
        (NORMAL.replace("(2, 3, 5)", "(-2, -3, 5)"), "not an array of numbers or strings"),
        (NORMAL.replace("|u1", "|O"), "holds Python objects"),
        (NORMAL.replace("|u1", "<u3"), "not an array of numbers or strings"),
        (NORMAL.replace("|u1", "|V1"), "not an array of numbers or strings"),
        ("-" * 9000 + "1", "not an array of numbers or strings"),  # MemoryError in ast.
        ("(" * 9000, "not an array of numbers or strings"),
        (NORMAL + " " * 20_000, "its header promises another size than its 20,103 bytes"),
        ("", "not an array of numbers or strings"),
    ],
)
def test_hostile_headers(write_zip: Write, text: str, message: str) -> None:
    path = write_zip(x=npy(IMAGES, text), y=npy(LABELS))
    with pytest.raises(DataError, match=f"^{path}, x.npy: {message}"):
        read_image_arrays(path)


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY\1\0", b"\x93NUMPY\3\0\0\0\0\0", b"hello, you"]
)
def test_members_that_are_no_arrays(write_zip: Write, content: bytes) -> None:
    path = write_zip(x=content, y=npy(LABELS))
    with pytest.raises(DataError, match=r"^.*(x.npy: not an array|cannot be read as NPZ: unpack)"):
        read_image_arrays(path)


def test_other_compression_is_refused(write_zip: Write) -> None:
    path = write_zip(zipfile.ZIP_BZIP2, x=npy(IMAGES), y=npy(LABELS))
    with pytest.raises(DataError, match=f"^{path}, x.npy: compressed in a way that NumPy does not"):
        read_image_arrays(path)


TWO_GIB = struct.pack("<I", 1 << 31)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        # The sizes in the file and unpacked.
        (24, TWO_GIB, "promises 2,147,483,648 bytes, more than it can hold or can be read"),
        (20, TWO_GIB * 2, "promises 2,147,483,648 bytes, more than it can hold or can be read"),
        (24, b"\x96\0\0\0", "cannot be read as NPZ: Bad CRC-32 for file 'x.npy'"),
        (16, b"1234", "cannot be read as NPZ: Bad CRC-32 for file 'x.npy'"),
        (8, b"\1", "cannot be read as NPZ: .*encrypted"),
    ],
)
def test_what_the_directory_of_a_zip_file_says_is_checked(
    write_zip: Write, offset: int, value: bytes, message: str
) -> None:
    path = write_zip(x=npy(IMAGES), y=npy(LABELS))
    patch_directory(path, offset, value)
    with pytest.raises(DataError, match=message):
        read_image_arrays(path)


def test_a_compressed_member_that_ends_early(write_zip: Write) -> None:
    path = write_zip(zipfile.ZIP_DEFLATED, x=npy(IMAGES)[:-1], y=npy(LABELS))
    patch_directory(path, 24, struct.pack("<I", len(npy(IMAGES))))
    with pytest.raises(DataError, match="cannot be read as NPZ: EOF: reading array data"):
        read_image_arrays(path)


def patch_directory(path: Path, offset: int, value: bytes) -> None:
    """Overwrite bytes of the first entry of the directory at the end of a ZIP file."""
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\1\2") + offset
    content[at : at + len(value)] = value
    path.write_bytes(content)


def test_truncated_npz_files(write_npz: Write) -> None:
    path = write_npz(x=IMAGES, y=LABELS)
    content = path.read_bytes()
    for size in range(0, len(content), 31):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=f"^{path}: cannot be read as NPZ: "):
            read_image_arrays(path)


def damaged(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice([1, 2, 4])):
        at = chance.randrange(min(len(changed), chance.choice([30, len(changed)])))
        changed[at] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
    return bytes(changed)


def test_damaged_files_give_arrays_or_data_errors(write_idx: Write, write_zip: Write) -> None:
    chance = random.Random(0)
    messages = []
    floats, words = npy(IMAGES / 255), npy(np.array(["a", "b"]))
    for number in range(80):
        match number % 4:
            case 0:
                path = write_idx(damaged(IMAGES_IDX, chance))
            case 1:
                path = write_idx(
                    damaged(gzip.compress(IMAGES_IDX), chance), gzip.compress(LABELS_IDX), ".gz"
                )
            case 2:
                path = write_zip(x=damaged(floats, chance), y=damaged(words, chance))
            case _:
                path = write_zip(zipfile.ZIP_DEFLATED, x=floats, y=words)
                path.write_bytes(damaged(path.read_bytes(), chance))
        try:
            found = read_image_arrays(path)
        except DataError as error:
            messages.append(str(error))
        else:
            assert found.images.dtype == np.uint8
            assert len(found.images) == len(found.labels)
    assert 0 < len(messages) < 80
    assert all(re.fullmatch(f"{path.parent}/.+", message) for message in messages)
