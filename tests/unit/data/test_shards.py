import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headwise.data.shards import Floats, ShardWriter, TokenShards, id_dtype
from headwise.errors import DataError, UnsafeFileError

SIZES = {"source": 300, "target": 70_000}


def sequences(count: int, seed: int = 0) -> dict[str, list[list[int]]]:
    generator = np.random.default_rng(seed)
    return {
        name: [generator.integers(0, size, generator.integers(0, 9)).tolist() for _ in range(count)]
        for name, size in SIZES.items()
    }


def packed(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    flat = [token for one in lists for token in one]
    return np.array(flat, dtype=np.int64), np.array([len(one) for one in lists])


def write(directory: Path, data: dict[str, list[list[int]]], block: int, per_shard: int) -> None:
    with ShardWriter(directory, SIZES, sequences_per_shard=per_shard) as writer:
        for start in range(0, len(data["source"]), block):
            writer.add({name: packed(lists[start : start + block]) for name, lists in data.items()})
        writer.notes["pairs"] = len(data["source"])


@pytest.mark.parametrize(("block", "per_shard"), [(1, 5), (7, 5), (23, 5), (4, 1000), (23, 23)])
def test_what_is_written_is_read(tmp_path: Path, block: int, per_shard: int) -> None:
    data = sequences(23)
    write(tmp_path / "d", data, block, per_shard)
    shards = TokenShards(tmp_path / "d")
    shards.verify()
    assert len(shards) == 23
    assert shards.notes == {"pairs": 23}
    for name, lists in data.items():
        assert [shards.sequence(name, n).tolist() for n in range(23)] == lists
        several = np.array([22, 3, 0, 3, 11])
        ids, lengths = shards.sequences(name, several)
        expected, _ = packed([lists[n] for n in several])
        assert (ids.tolist(), lengths.tolist()) == (
            expected.tolist(),
            [len(lists[n]) for n in several],
        )
        assert shards.lengths(name).tolist() == [len(one) for one in lists]
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_the_files_do_not_depend_on_the_blocks(tmp_path: Path) -> None:
    data = sequences(23)
    write(tmp_path / "a", data, block=4, per_shard=10)
    write(tmp_path / "b", data, block=9, per_shard=10)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_ids_take_two_bytes_where_they_can() -> None:
    assert id_dtype(2**16).itemsize == 2
    assert id_dtype(2**16 + 1).itemsize == 4


def test_no_sequences_at_all(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "d", SIZES):
        pass
    shards = TokenShards(tmp_path / "d")
    assert len(shards) == 0
    assert shards.lengths("source").tolist() == []


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with ShardWriter(tmp_path / "d", SIZES) as writer:
            writer.add({name: packed([[5, 6]]) for name in SIZES})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="^$"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="exists already"):
        ShardWriter(tmp_path, SIZES)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    code = f"""
import resource, signal, numpy as np
from pathlib import Path
from headwise.data.shards import ShardWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with ShardWriter(Path({str(tmp_path / "d")!r}), {{"source": 300}}) as writer:
        for _ in range(100):
            writer.add({{"source": (np.ones(1000, dtype=np.int64), np.array([1000]))}})
except OSError as error:
    print("refused:", error.strerror)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "refused: File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "d", sequences(23), block=5, per_shard=10)
    ids = tmp_path / "d" / "00001.source.ids"
    good = ids.read_bytes()
    ids.write_bytes(good[:-1])
    with pytest.raises(DataError, match=r"00001\.source\.ids has \d+ bytes, not \d+"):
        TokenShards(tmp_path / "d")
    ids.write_bytes(bytes([good[0] ^ 1]) + good[1:])
    shards = TokenShards(tmp_path / "d")
    with pytest.raises(DataError, match=r"00001\.source\.ids has been changed"):
        shards.verify()
    ids.unlink()
    with pytest.raises(DataError, match=r"00001\.source\.ids: cannot be read: No such file"):
        TokenShards(tmp_path / "d")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format_version": 2}, "format_version is 2, and this Headwise reads 1"),
        ({"shards": [-1]}, "is not a manifest of shards"),
        ({"shards": "x"}, "is not a manifest of shards"),
        ({"shards": [2**62]}, "is not a manifest of shards"),
        ({"streams": {"../../etc/x": {"dtype": "<u2", "tokens": 1}}}, "is not a manifest"),
        ({"streams": {"source": {"dtype": "O", "tokens": 1}}}, "is not a manifest"),
        ({"sha256": {}}, "is not a manifest"),
        ({"notes": 3}, "is not a manifest"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    write(tmp_path / "d", sequences(3), block=5, per_shard=10)
    path = tmp_path / "d" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=complaint):
        TokenShards(tmp_path / "d")


def test_a_manifest_that_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manifest\.json: cannot be read: No such file"):
        TokenShards(tmp_path)
    for text in ("", "{", "[]", "9" * 5000):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(DataError, match=r"manifest\.json"):
            TokenShards(tmp_path)


def change(path: Path, kind: str, place: int, value: int) -> None:
    numbers = np.fromfile(path, dtype=kind)
    numbers[place] = value
    path.write_bytes(numbers.tobytes())


@pytest.mark.parametrize(("place", "value"), [(0, 1), (2, 2**40), (3, 2**64 - 1), (5, 0)])
def test_offsets_rise_from_nought(tmp_path: Path, place: int, value: int) -> None:
    write(tmp_path / "d", sequences(23), block=5, per_shard=10)
    change(tmp_path / "d" / "00001.source.offsets", "<u8", place, value)
    with pytest.raises(
        DataError, match=r"00001\.source\.offsets: damaged: the offsets do not rise"
    ):
        TokenShards(tmp_path / "d")


def test_offsets_are_checked_beyond_the_first_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.data.shards._CHUNK", 4)
    write(tmp_path / "d", {name: [[5, 6]] * 23 for name in SIZES}, block=5, per_shard=23)
    TokenShards(tmp_path / "d")
    for place in (4, 5, 20, 22):
        change(tmp_path / "d" / "00000.source.offsets", "<u8", place, 2 * place + 3)
        with pytest.raises(DataError, match="the offsets do not rise"):
            TokenShards(tmp_path / "d")
        change(tmp_path / "d" / "00000.source.offsets", "<u8", place, 2 * place)


def test_ids_outside_a_vocabulary_are_found(tmp_path: Path) -> None:
    write(tmp_path / "d", {name: [[5, 6], [7]] for name in SIZES}, block=5, per_shard=10)
    shards = TokenShards(tmp_path / "d")
    shards.verify({"source": 8, "target": 8})
    assert shards.checked_sequence("target", 0, 7).tolist() == [5, 6]
    with pytest.raises(DataError, match=r"00000\.target\.ids: has id 7, and the vocabulary has 7"):
        shards.verify({"source": 8, "target": 7})
    with pytest.raises(DataError, match="target 1 has id 7, and the vocabulary has 7 entries"):
        shards.checked_sequence("target", 1, 7)
    with pytest.raises(DataError, match="has no stream 'other'"):
        shards.lengths("other")


def test_shards_are_read_through_no_symlink(tmp_path: Path) -> None:
    write(tmp_path / "d", sequences(3), block=5, per_shard=10)
    (tmp_path / "d" / "00000.source.ids").rename(tmp_path / "elsewhere")
    (tmp_path / "d" / "00000.source.ids").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError, match=r"00000\.source\.ids is a symlink"):
        TokenShards(tmp_path / "d")


def test_a_copy_has_the_same_files(tmp_path: Path) -> None:
    write(tmp_path / "d", sequences(23), block=5, per_shard=10)
    (tmp_path / "d" / "unrelated").touch()
    TokenShards(tmp_path / "d").copy_to(tmp_path / "copy")
    (tmp_path / "d" / "unrelated").unlink()
    TokenShards(tmp_path / "copy").verify(SIZES)
    originals = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == originals


def test_floats_come_back_by_position(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(8, 3)
    with ShardWriter(tmp_path / "d", {"frames": Floats(3)}, sequences_per_shard=2) as writer:
        writer.add({"frames": (values, np.array([1, 4, 3]))})
    shards = TokenShards(tmp_path / "d")
    shards.verify()
    assert shards.lengths("frames").tolist() == [1, 4, 3]
    assert shards.sequence("frames", 1).tolist() == values[1:5].tolist()
    found, lengths = shards.sequences("frames", np.array([2, 0]))
    assert found.tolist() == [*values[5:].tolist(), *values[:1].tolist()]
    assert lengths.tolist() == [3, 1]


def test_floats_are_not_taken_for_ids(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "d", {"source": Floats(2)}) as writer:
        writer.add({"source": (np.ones((2, 2), dtype=np.float32), np.array([2]))})
    shards = TokenShards(tmp_path / "d")
    with pytest.raises(DataError, match="source has floats, not ids"):
        shards.verify({"source": 50})
    with pytest.raises(DataError, match="source has floats, not ids"):
        shards.checked_sequence("source", 0, 50)
