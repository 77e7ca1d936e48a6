"""Every attention weight of a text, or of a pair of texts, as data for a page or a picture.

The server sends the same record; its format is public:

    source, target      the two texts
    source_tokens       what the encoder reads, eos included: S of them
    input_tokens        what the decoder reads at each position, from bos on: T
    output_tokens       what it writes there, eos included: T
    encoder             [layer][head][S][S]: how much of its attention each row gives each column
    decoder             [layer][head][T][T]
    cross               [layer][head][T][S]

    picture             of an image or a sound: `kind`, `png` as a data URI, and the `rows` and
                        `columns` of its patches or frames, which are the source's positions after
                        the class token, row by row; else null

A model without an encoder, such as a language model, has no source: `source`, `source_tokens`,
`encoder` and `cross` are empty, and the target is the text that it reads.
A token begins with a space where a word begins; bytes are shown as the character they form.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from torch import Tensor

from headwise.model import Trace
from headwise.tasks.tracing import Picture, TracedPair, data_uri
from headwise.visible import visible

Kind = Literal["cross", "encoder", "decoder"]
Weights = list[list[list[list[float]]]]

BEGIN, END = "‹begin›", "‹end›"

MOST_TOKENS = 100
"""Of a given text: more would not fit a screen, and pages would have many megabytes."""

_DECIMALS = 4
_UNKNOWN = "<unk>"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@runtime_checkable
class Traceable(Protocol):
    """A predictor that shows its attention."""

    @property
    def name(self) -> str:
        """Where the weights come from."""
        ...

    def trace(self, source: str, target: str | None = None, *, most_tokens: int) -> TracedPair:
        """Return the attention within a text, and its target where the model has an encoder.

        Without a target, that is the model's own output; a model without an encoder takes none.
        A text of more than `most_tokens`, or one that cannot be encoded, is a RequestError.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class AttentionRecord:
    """A text or a pair of texts, and every attention weight between their tokens."""

    source: str
    target: str
    source_tokens: tuple[str, ...]
    input_tokens: tuple[str, ...]
    output_tokens: tuple[str, ...]
    encoder: Weights
    decoder: Weights
    cross: Weights
    picture: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """What the model was given."""
        return self.source or self.target

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that the model has; the first is the one to show first."""
        return tuple(kind for kind in get_args(Kind) if self.weights(kind))

    def weights(self, kind: Kind) -> Weights:
        """Return the weights of one kind of attention."""
        return {"cross": self.cross, "encoder": self.encoder, "decoder": self.decoder}[kind]

    def rows(self, kind: Kind) -> tuple[str, ...]:
        """Return the tokens that look: what is read, or what is being written."""
        return self.source_tokens if kind == "encoder" else self.output_tokens

    def columns(self, kind: Kind) -> tuple[str, ...]:
        """Return the tokens that are looked at."""
        return self.input_tokens if kind == "decoder" else self.source_tokens

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return dict(vars(self))  # Not asdict, which would copy every number.


def attention_record(predictor: Traceable, text: str, target: str | None = None) -> AttentionRecord:
    """Trace a text; where the model has an encoder, with its own output or the target given."""
    return record_of(predictor.trace(text, target, most_tokens=MOST_TOKENS))


def record_of(pair: TracedPair) -> AttentionRecord:
    """Turn a traced pair, or a traced text, into a record with readable tokens."""
    weights: dict[str, Weights] = {
        kind: list(map(layer_weights, layers)) for kind, layers in _layers(pair.trace).items()
    }
    return AttentionRecord(**(_texts(pair) | weights))


def record_json(pair: TracedPair, layers: Sequence[str]) -> str:
    """Return a record as JSON, given the JSON of the `layer_weights` of each of `all_layers`."""
    fields = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in _texts(pair).items()]
    given = iter(layers)
    for kind, tensors in _layers(pair.trace).items():
        fields.append(f'"{kind}":[{",".join(islice(given, len(tensors)))}]')
    return f"{{{','.join(fields)}}}"


def all_layers(pair: TracedPair) -> list[Tensor]:
    """Return the weights of each layer of each kind of attention."""
    return [layer for layers in _layers(pair.trace).values() for layer in layers]


def layer_weights(layer: Tensor) -> list[list[list[float]]]:
    """Return a layer's weights [head][row][column], rounded."""
    # In double precision: a rounded float32 would print with many decimals.
    rounded: list[list[list[float]]] = layer[0].double().cpu().round(decimals=_DECIMALS).tolist()
    return rounded


def _layers(trace: Trace) -> dict[Kind, list[Tensor]]:
    return {
        "encoder": trace.encoder.self_attention,
        "decoder": trace.decoder.self_attention,
        "cross": trace.decoder.cross_attention,
    }


def _texts(pair: TracedPair) -> dict[str, Any]:
    target_tokens = readable(pair.target_tokens)
    has_source = bool(pair.trace.encoder.self_attention or pair.trace.decoder.cross_attention)
    return {
        "source": pair.source,
        "target": pair.target,
        "source_tokens": _source_tokens(pair) if has_source else (),
        "input_tokens": (BEGIN, *target_tokens),
        "output_tokens": (*target_tokens, END),
        "picture": _picture(pair.picture),
    }


def _source_tokens(pair: TracedPair) -> tuple[str, ...]:
    if pair.picture is not None:
        return pair.source_tokens  # The names of places: nothing to make readable, and no eos.
    return (*readable(pair.source_tokens), END)


def _picture(picture: Picture | None) -> dict[str, Any] | None:
    if picture is None:
        return None
    return {**vars(picture), "png": data_uri(picture.png)}


def readable(tokens: tuple[str, ...]) -> list[str]:
    """Make SentencePiece's tokens readable: spaces as spaces, bytes as the characters they form.

    A character of several bytes is shown with each of them, as in "é 1/2" and "é 2/2".
    """
    found: list[str] = []
    spelled: list[int] = []
    for token in tokens:
        if match := _BYTE.fullmatch(token):
            spelled.append(int(match[1], 16))
            continue
        found += _spell(bytes(spelled))
        spelled = []
        found.append("‹unknown›" if token == _UNKNOWN else visible(token.replace("▁", " ")))
    return found + _spell(bytes(spelled))


def _spell(content: bytes) -> list[str]:
    """Show bytes one by one: each as its character or, if they are not UTF-8, as a number."""
    found: list[str] = []
    # Each byte that cannot be decoded becomes a surrogate.
    for character in content.decode("utf-8", "surrogateescape"):
        raw = character.encode("utf-8", "surrogateescape")
        if len(raw) == 1:
            is_shown = character.isprintable() and character != " "
            found.append(character if is_shown else f"byte {raw[0]:02X}")
        else:
            count = len(raw)
            found += [f"{visible(character)} {n}/{count}" for n in range(1, count + 1)]
    return found
