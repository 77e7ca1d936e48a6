"""Check a batch of ids before it reaches the model."""

from torch import Tensor

from headwise.config import Vocab
from headwise.errors import DataError


def check_batch(src: Tensor, tgt_in: Tensor, tgt_out: Tensor, vocab: Vocab) -> None:
    """Raise DataError unless the ids are what `Transformer` and `TrainingStep` rely on.

    Each argument is an integer tensor [rows, length] with as many rows as the others, ids inside
    the vocabulary, at least one real token in each row and padding only at the end of a row. The
    two targets pad the same positions. Nothing is checked again inside the model.
    """
    sides = (
        ("src", src, vocab.source_size),
        ("tgt_in", tgt_in, vocab.target_size),
        ("tgt_out", tgt_out, vocab.target_size),
    )
    for name, ids, size in sides:
        check_ids(name, ids, size, vocab)
        if ids.shape[0] != src.shape[0]:
            raise DataError(f"{name} has {ids.shape[0]} rows and src {src.shape[0]}: pair them")
    if tgt_in.shape != tgt_out.shape or bool(
        ((tgt_in == vocab.pad) != (tgt_out == vocab.pad)).any()
    ):
        raise DataError("tgt_in and tgt_out must pad the same positions: tgt_out is tgt_in shifted")


def check_aligned(aligned: Tensor, src: Tensor, tgt_in: Tensor, vocab: Vocab) -> None:
    """Raise DataError unless each target position has the position of a source token.

    It is what a `Transformer` with `aligned_input` relies on, besides `check_batch`.
    """
    if aligned.shape != tgt_in.shape or aligned.is_floating_point():
        raise DataError(
            f"aligned must be integer positions of shape {list(tgt_in.shape)}, as tgt_in, "
            f"not {aligned.dtype} of shape {list(aligned.shape)}"
        )
    lengths = (src != vocab.pad).sum(1)
    outside = (aligned < 0) | (aligned >= lengths[:, None])
    if bool(outside.any()):
        row, column = outside.nonzero()[0].tolist()
        raise DataError(
            f"aligned row {row}, position {column}: there is no source token at "
            f"{aligned[row, column].item()}, the row has {lengths[row].item()}"
        )


def check_ids(name: str, ids: Tensor, size: int, vocab: Vocab) -> None:
    """Raise DataError unless ids are [rows, length], in range, and padded at their end only."""
    if ids.dim() != 2 or ids.is_floating_point() or ids.is_complex() or 0 in ids.shape:
        raise DataError(
            f"{name} must be integer ids of shape [rows, length] with neither 0, "
            f"not {ids.dtype} of shape {list(ids.shape)}"
        )
    outside = (ids < 0) | (ids >= size)
    if bool(outside.any()):
        row, column = outside.nonzero()[0].tolist()
        raise DataError(
            f"{name} row {row}, position {column}: id {ids[row, column].item()} is outside the "
            f"vocabulary of {size} entries (0 to {size - 1}): is this the right vocabulary?"
        )
    real = ids != vocab.pad
    empty = ~real.any(dim=1)
    if bool(empty.any()):
        raise DataError(
            f"{name} row {int(empty.nonzero()[0])} holds nothing but padding: "
            "an empty sentence is at least its end token"
        )
    gaps = real[:, 1:] & ~real[:, :-1]
    if bool(gaps.any()):
        row, column = gaps.nonzero()[0].tolist()
        raise DataError(
            f"{name} row {row}, position {column}: padding before a token; "
            "padding may stand only at the end of a row"
        )
