"""The largest of each row, found by blocks."""

import pytest
import torch

from headwise.decoding.best import largest


@pytest.mark.parametrize(("rows", "size"), [(1, 64), (3, 100), (16, 8000), (16, 8001), (5, 6592)])
def test_the_largest_is_torchs(rows: int, size: int) -> None:
    scores = torch.randn(rows, size, generator=torch.Generator().manual_seed(size))
    scores[0, -1] = 9.0
    scores[-1, 0] = 10.0
    values, ids = largest(scores)
    expected = scores.max(1)
    assert torch.equal(values, expected.values)
    assert torch.equal(ids, expected.indices)


def test_nan_is_not_lost() -> None:
    scores = torch.randn(16, 8000, generator=torch.Generator().manual_seed(1))
    scores[3, 4567] = float("nan")
    values, ids = largest(scores)
    assert values.isnan().nonzero().flatten().tolist() == [3]
    assert int(ids[3]) == 4567
