"""Write attention to a file: the explorer page or a picture, by the file's suffix."""

from collections.abc import Sequence
from pathlib import Path

from headwise.errors import RequestError
from headwise.files import write_output
from headwise.inspect.attention import Kind, Traceable, attention_record
from headwise.inspect.attention_figure import render_attention_figure
from headwise.inspect.attention_page import Choice, render_attention
from headwise.inspect.figures import kind_of


def write_attention(
    predictor: Traceable,
    text: str,
    out: Path,
    *,
    target: str | None = None,
    kind: Kind | None = None,
    layer: int | None = None,
    heads: Sequence[int] = (),
) -> None:
    """Write the attention within a text; with an encoder, and its output or the target given.

    The default kind is cross-attention, or the decoder's where there is no encoder.
    Layer and heads count from 1, as in the paper. They select what a page shows first (by default
    the mean of the heads) and what a picture shows (by default all heads). The default layer is the
    last but one, where cross-attention aligns words best.
    """
    file_kind = kind_of(out)
    if file_kind == "html" and len(heads) > 1:
        raise RequestError("a page shows one head at first and lets you choose others: name one")
    record = attention_record(predictor, text, target)
    kind = kind or record.kinds[0]
    if kind not in record.kinds:
        kinds = " and ".join(record.kinds)
        raise RequestError(f"there is no {kind} attention: the model has {kinds} attention")
    num_layers, num_heads = len(record.weights(kind)), len(record.weights(kind)[0])
    if layer is None:
        layer = max(1, num_layers - 1)
    if not 1 <= layer <= num_layers:
        raise RequestError(f"there is no layer {layer}: the model has 1 to {num_layers}")
    for head in heads:
        if not 1 <= head <= num_heads:
            raise RequestError(f"there is no head {head}: the model has 1 to {num_heads}")
    if file_kind == "html":
        choice: Choice = {"kind": kind, "layer": layer - 1}
        if heads:
            choice["head"] = heads[0] - 1
        content = render_attention(record, predictor.name, choice).encode()
    else:
        shown = [head - 1 for head in heads] or range(num_heads)
        content = render_attention_figure(
            record, file_kind, kind=kind, layer=layer - 1, heads=shown
        )
    try:
        write_output(out, content)
    except OSError as error:
        raise RequestError(f"{out}: cannot write the attention: {error.strerror}") from error
