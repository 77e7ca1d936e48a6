"""A trained transcriber as a function from images of lines, or sounds, to their texts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise.config import STRONGEST_PENALTY, WIDEST_BEAM, AnyConfig
from headwise.data.text import plain
from headwise.decoding import Hypothesis, SearchSettings
from headwise.errors import CheckpointError, HeadwiseError, RequestError
from headwise.model import Trace, Transformer, build_model
from headwise.recipes import search_as
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.runs.model import load_trained
from headwise.tasks.encoders import Encoded, Encoder
from headwise.tasks.table import require_task
from headwise.tasks.tracing import TracedPair
from headwise.tasks.transcription.kinds import kind_of
from headwise.tasks.transcription.long_sounds import MOST_SECONDS, Piece, pieces_of
from headwise.tasks.transcription.search import search_texts
from headwise.tasks.transcription.targets import Targets, load_targets, traceable_target
from headwise.tasks.transcription.times import TimedWord, timed_words
from headwise.tasks.vectors.audio import AudioEncoder

_MOST_TRACED = 2_000_000
"""Attention weights on a page."""

_WINDOW = 256
"""Examples that are encoded at a time: images and sounds take memory."""


@dataclass(frozen=True, kw_only=True)
class Transcription:
    """What is written in an image, or said in a sound."""

    text: str
    log_prob: float = 0.0
    """The natural logarithm of its probability."""
    score: float = 0.0
    """The log-probability divided by the length penalty."""
    is_cut: bool = False
    """Whether the image is wider than what is read of one."""
    ids: tuple[int, ...] = ()
    """The ids of the tokens of the text; of several parts, one after the other."""
    num_parts: int = 1
    """More than 1 if the sound is longer than what is read at once: it is cut where it is quiet,
    and the texts of the parts are joined."""
    words: tuple[TimedWord, ...] = ()
    """The words of a sound with their times, if they were asked for."""


class Transcriber:
    """Write down images of lines of text, or sounds, with a trained run. It is thread-safe.

    An image is a path, the bytes of a file, or an array of bytes [height, width] or [height, width,
    colours]. A sound is a path, the bytes of a file, or a pair of samples and their rate.
    """

    def __init__(
        self,
        model: Transformer,
        encoder: Encoder,
        targets: Targets,
        config: AnyConfig,
        *,
        name: str,
        batch_size: int | None = None,
    ) -> None:
        self.model, self.config = model.eval(), config
        self.encoder, self.targets = encoder, targets
        self.name = name
        """Where the weights come from."""
        self._batch_size = batch_size

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        checkpoint: str | None = None,
        device: str = "cpu",
        batch_size: int | None = None,
        overrides: Sequence[str] = (),
    ) -> "Transcriber":
        """Load a run directory: its average, else its best checkpoint, else its last.

        Overrides are [decode] settings such as "decode.beam=8"; they replace the run's own. With a
        batch size of 1, a transcription depends on no other example.
        """
        directory = RunDirectory(Path(run))
        config: AnyConfig = directory.config()
        require_task("transcription", config, directory.path)
        try:
            encoder = kind_of(config).load(directory.folder, config.data)
            targets = load_targets(directory.folder, config.data)
        except HeadwiseError as error:
            raise CheckpointError(f"{directory.path}: {error}") from error
        vocab = encoder.vocab(len(targets))
        model, weights = load_trained(
            directory,
            checkpoint,
            parameters=config.model.count_parameters(vocab, "seq2seq"),
            build=lambda: build_model(config.model, vocab, "seq2seq"),
        )
        return cls(
            model.to(choose_device(device)),
            encoder,
            targets,
            search_as(config, overrides),
            name=str(weights),
            batch_size=batch_size,
        )

    @property
    def input(self) -> str:
        """What it transcribes: "images" or "audio"."""
        return self.config.row.input

    def settings(self, *, beam: int | None = None, alpha: float | None = None) -> SearchSettings:
        """Return the run's search settings, with this call's changes."""
        decode = self.config.decode
        width = decode.beam if beam is None else beam
        if not 1 <= width <= WIDEST_BEAM:
            raise RequestError(f"beam = {width} must be at least 1 and at most {WIDEST_BEAM:,}")
        strength = decode.alpha if alpha is None else alpha
        if not 0 <= strength <= STRONGEST_PENALTY:
            raise RequestError(f"alpha = {strength} must be a number from 0 to {STRONGEST_PENALTY}")
        return SearchSettings(
            beam=width,
            alpha=strength,
            penalty=decode.penalty,
            # A beam of one is greedy search: it stops at the first eos.
            stop=decode.stop if width > 1 else "count",
        )

    def transcribe(
        self,
        examples: Any,
        *,
        beam: int | None = None,
        alpha: float | None = None,
        times: bool = False,
    ) -> list[Transcription]:
        """Transcribe one example or several; results come in their order.

        With `times`, the words of sounds have the times at which the decoder attends to them.
        """
        if times and self.input != "audio":
            raise RequestError("times are of words in sounds: images have none")
        settings = self.settings(beam=beam, alpha=alpha)
        results: list[Transcription] = []
        waiting = iter([examples] if self._is_one(examples) else examples)
        while window := [self._pieces(example) for example in islice(waiting, _WINDOW)]:
            results += self._transcribed(window, settings, times=times)
        return results

    def transcribe_pieces(self, pieces: list[Piece], *, times: bool = False) -> Transcription:
        """Transcribe an example that is encoded, by the run's own settings."""
        (found,) = self._transcribed([pieces], self.settings(), times=times)
        return found

    def trace(self, source: Any, target: str | None = None, *, most_tokens: int) -> TracedPair:
        """Return the attention of an example and its text; without a target, of its own output."""
        pieces = self._pieces(source)
        encoded = pieces[0].encoded
        picture = self.encoder.picture(encoded)
        assert picture is not None
        if len(pieces) > 1:
            raise RequestError(f"the sound is read in {len(pieces):,} parts: give a shorter one")
        if target is None:
            ids = list(self.transcribe_pieces(pieces).ids)
        else:
            ids = traceable_target(target, self.targets, most_tokens)
        if not self.is_traceable(encoded, ids):
            raise RequestError(
                f"the {picture.kind} has {len(encoded.values):,} positions, too many to show "
                "attention for in this model"
            )
        return TracedPair(
            source=source if isinstance(source, str) else picture.kind,
            target=self.targets.decode(ids),
            source_tokens=self.encoder.tokens(encoded),
            target_tokens=tuple(self.targets.tokens(ids)),
            trace=self.traced(encoded, ids),
            picture=picture,
        )

    def traced(self, encoded: Encoded, ids: list[int]) -> Trace:
        """Return the attention of all layers, of what was encoded and the ids of its text."""
        trace, device = Trace(), self.model.output.weight.device
        src, lengths = self.encoder.padded((encoded.values, np.array([len(encoded.values)])))
        tgt_in = torch.tensor([[self.model.vocab.start, *ids]], device=device)
        with torch.inference_mode():
            self.model.hidden(src.to(device), tgt_in, lengths=lengths.to(device), trace=trace)
        return trace

    def is_traceable(self, encoded: Encoded, ids: list[int]) -> bool:
        """Return whether the attention of an example and its text fits a page."""
        sizes = len(encoded.values) + 1, len(ids) + 1
        return bool(self.config.model.count_attention_weights(*sizes) <= _MOST_TRACED)

    def _is_one(self, example: Any) -> bool:
        """Return whether it is one example; a pair of samples and their rate is one sound."""
        if isinstance(example, tuple) and not isinstance(example, Encoded):
            is_pair = self.input == "audio" and len(example) == 2
            return is_pair and isinstance(example[1], int | float | np.number)
        is_known = isinstance(example, str | bytes | Path | np.ndarray | Encoded)
        return is_known or not isinstance(example, Iterable)

    def _pieces(self, example: Any) -> list[Piece]:
        """Encode an example; a long sound is several pieces."""
        if isinstance(example, Encoded):
            return [Piece(example)]
        if isinstance(self.encoder, AudioEncoder):
            return pieces_of(example, self.encoder, self.config.data, MOST_SECONDS)
        return [Piece(self.encoder.encode(self.encoder.given(example)))]

    def _transcribed(
        self, window: list[list[Piece]], settings: SearchSettings, *, times: bool
    ) -> list[Transcription]:
        pieces = [piece for each in window for piece in each]
        found = search_texts(
            self.model,
            [piece.encoded.values for piece in pieces],
            settings,
            max_extra_tokens=self.config.decode.max_extra_tokens,
            batch_size=self._batch_size,
        )
        best = iter(zip(pieces, (first for first, *_ in found), strict=True))
        return [self._joined([next(best) for _ in each], times=times) for each in window]

    def _joined(self, parts: list[tuple[Piece, Hypothesis]], *, times: bool) -> Transcription:
        """Join the texts of the parts of one example."""
        texts = [plain(self.targets.decode(list(found.ids))) for _, found in parts]
        words: list[TimedWord] = []
        if times:
            for piece, found in parts:
                words += timed_words(
                    self.model, piece, list(found.ids), self.targets, self.config.data
                )
        return Transcription(
            text=" ".join(filter(None, texts)),
            log_prob=sum(found.log_prob for _, found in parts),
            score=sum(found.score for _, found in parts) / len(parts),
            is_cut=any(piece.encoded.is_cut for piece, _ in parts),
            ids=tuple(each for _, found in parts for each in found.ids),
            num_parts=len(parts),
            words=tuple(words),
        )
