"""How many examples are held in memory at a time, and what columns of several files are for."""

from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

from headwise.errors import DataError
from headwise.tasks.classification.inputs import IMAGES
from headwise.tasks.classification.windows import windows
from headwise.tasks.encoders import Encoded


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((3, 4), 256), ((3072, 1024), 5), ((1 << 14, 1 << 10), 1), ((1 << 15, 1 << 10), 1)],
)
def test_windows_are_of_so_many_examples_or_floats(shape: tuple[int, int], expected: int) -> None:
    # An array that takes no memory.
    image = Encoded(np.broadcast_to(np.float32(0), shape))
    found = list(islice(windows((number, image) for number in count()), 3))
    assert [len(window) for window in found] == [expected] * 3
    assert [number for window in found for number, _ in window] == list(range(3 * expected))


def test_the_last_window_is_what_is_left() -> None:
    example = Encoded(np.zeros(4))
    assert [len(window) for window in windows([(n, example) for n in range(300)])] == [256, 44]
    assert list(windows([])) == []


def test_columns_are_of_the_parts_that_have_tables(tmp_path: Path) -> None:
    folder, table = tmp_path / "train", tmp_path / "valid.csv"
    folder.mkdir()
    columns = {"image_column": "path", "label_column": "label"}
    values = {"images": [folder], "valid_table": [table], **columns}
    train, valid = IMAGES.training(values), IMAGES.validation(values)
    assert train is not None
    assert valid is not None
    assert (train.column, train.label_column) == (None, None)
    assert (valid.column, valid.label_column) == ("path", "label")
    with pytest.raises(DataError, match=r"--image-column 'path': .*train is no table with columns"):
        IMAGES.training({"images": [folder], **columns})
