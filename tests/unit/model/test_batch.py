import pytest

from headwise.config import Vocab
from headwise.errors import DataError
from headwise.model import check_batch
from tests.conftest import VOCAB, make_batch


def test_a_good_batch_passes() -> None:
    src, tgt_in, tgt_out = make_batch()
    src[2, 5:] = VOCAB.pad
    tgt_in[1, 7:] = VOCAB.pad
    tgt_out[1, 7:] = VOCAB.pad
    check_batch(src, tgt_in, tgt_out, VOCAB)


@pytest.mark.parametrize(
    ("side", "row", "columns", "value", "complaint"),
    [
        ("src", 1, 3, 23, "src row 1, position 3: id 23 is outside the vocabulary of 23 entries"),
        ("src", 0, 0, -1, "src row 0, position 0: id -1 is outside"),
        ("tgt_in", 4, 2, 99, "tgt_in row 4, position 2: id 99 is outside"),
        ("tgt_out", 4, 12, 23, "tgt_out row 4, position 12: id 23 is outside"),
        ("src", 3, slice(None), 0, "src row 3 holds nothing but padding"),
        ("tgt_in", 0, slice(None), 0, "tgt_in row 0 holds nothing but padding"),
        ("src", 2, 0, 0, "src row 2, position 0: padding before a token"),
        ("tgt_out", 2, slice(5, 7), 0, "tgt_out row 2, position 6: padding before a token"),
        ("tgt_in", 2, slice(9, None), 0, "tgt_in and tgt_out must pad the same positions"),
    ],
)
def test_a_bad_id_is_named_with_its_place(
    side: str, row: int, columns: int | slice, value: int, complaint: str
) -> None:
    batch = dict(zip(("src", "tgt_in", "tgt_out"), make_batch(), strict=True))
    batch[side][row, columns] = value
    with pytest.raises(DataError, match=complaint):
        check_batch(**batch, vocab=VOCAB)


def test_each_side_has_a_vocabulary_of_its_own() -> None:
    vocab = Vocab(source_size=9, target_size=23)
    src, tgt_in, tgt_out = make_batch(vocab=vocab)
    check_batch(src, tgt_in, tgt_out, vocab)
    src[0, 0], tgt_in[0, 1] = 8, 22
    check_batch(src, tgt_in, tgt_out, vocab)
    src[0, 0] = 9
    with pytest.raises(DataError, match="id 9 is outside the vocabulary of 9 entries"):
        check_batch(src, tgt_in, tgt_out, vocab)


def test_a_bad_shape_is_named() -> None:
    src, tgt_in, tgt_out = make_batch()
    with pytest.raises(DataError, match=r"src must be integer ids .* not torch.float32"):
        check_batch(src.float(), tgt_in, tgt_out, VOCAB)
    with pytest.raises(DataError, match=r"of shape \[5, 0\]"):
        check_batch(src[:, :0], tgt_in, tgt_out, VOCAB)
    with pytest.raises(DataError, match=r"of shape \[0, 11\]"):
        check_batch(src[:0], tgt_in[:0], tgt_out[:0], VOCAB)
    with pytest.raises(DataError, match=r"of shape \[11\]"):
        check_batch(src[0], tgt_in, tgt_out, VOCAB)
    with pytest.raises(DataError, match="tgt_in has 4 rows and src 5"):
        check_batch(src, tgt_in[1:], tgt_out[1:], VOCAB)
    with pytest.raises(DataError, match="must pad the same positions"):
        check_batch(src, tgt_in[:, 1:], tgt_out, VOCAB)
