"""Hugging Face's Marian with the weights of one of our runs, in an environment given by path.

The environment is a virtual environment (Python 3.11) with transformers installed:

    pip install torch==2.13.0 && pip install transformers

Marian is the paper's post-norm model, so only the names of the weights differ. Its positions are a
table, which gets our values. Models that it cannot express are refused (`marian_config`). Before
anything is timed, its logits and outputs are compared with ours (`MarianPeer.check`).
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from training_peers import PeerFailedError, PeerMissingError, require

from headwise.config import ModelConfig, Vocab
from headwise.decoding import SearchSettings
from headwise.model import Transformer
from headwise.model.attention import MultiHeadAttention
from headwise.model.layers import Layer
from headwise.model.positions import sinusoids
from headwise.tasks.translation.torch_engine import TorchEngine

SCRIPT = Path(__file__).with_name("decoding_marian.py")
ATTENTIONS = ("sdpa", "eager")
CHECKED = 100
LEAST_EQUAL = 0.95
LARGEST_DIFFERENCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Check:
    """How closely the peer matches our model."""

    largest_difference: float
    """Largest difference of any logit."""
    equal_greedy: float
    """Share of the greedy outputs that are equal, token by token."""
    equal_beam: float
    """The same, with the timed beam."""


class MarianPeer:
    """A process that translates on request."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path, log: Path) -> None:
        self._process, self._folder, self._log = process, folder, log

    def translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        extra: int,
        *,
        attention: str,
        batch: int,
    ) -> tuple[list[tuple[int, ...]], float]:
        """Return the outputs and how many seconds they took, by the peer's own clock."""
        answer = self._ask(
            kind="generate",
            attention=attention,
            sources=sources,
            batch=batch,
            beam=settings.beam,
            alpha=settings.alpha,
            extra=extra,
        )
        return [tuple(ids) for ids in answer["outputs"]], answer["seconds"]

    def logits(self, sources: list[list[int]], targets: list[list[int]], attention: str) -> Tensor:
        """Return the logits after each token of the targets."""
        self._ask(kind="logits", attention=attention, sources=sources, targets=targets)
        return load_file(self._folder / "logits.safetensors")["logits"]

    def check(
        self, model: Transformer, sources: list[list[int]], settings: SearchSettings, extra: int
    ) -> Check:
        """Compare it with our model, and raise PeerFailedError if they differ."""
        sources = sources[:CHECKED]
        # Equal lengths, so that the comparison needs no padding.
        length = min(len(source) for source in sources)
        src = [[*source[:length], Vocab.eos] for source in sources]
        tgt = [[Vocab.bos, *source[:length]] for source in sources]
        with torch.inference_mode():
            ours = model(torch.tensor(src), torch.tensor(tgt))
        difference = max(
            float((ours - self.logits(src, tgt, attention)).abs().max()) for attention in ATTENTIONS
        )
        greedy = self._equal(model, sources, replace(settings, beam=1), extra)
        beam = self._equal(model, sources, settings, extra)
        found = Check(largest_difference=difference, equal_greedy=greedy, equal_beam=beam)
        if difference > LARGEST_DIFFERENCE or min(greedy, beam) < LEAST_EQUAL:
            raise PeerFailedError(f"Hugging Face's Marian computes something else: {found}")
        return found

    def _equal(
        self, model: Transformer, sources: list[list[int]], settings: SearchSettings, extra: int
    ) -> float:
        ours = [best.ids for best, *_ in TorchEngine(model).translate(sources, settings, extra)]
        return min(
            equal_share(
                ours, self.translate(sources, settings, extra, attention=attention, batch=32)[0]
            )
            for attention in ATTENTIONS
        )

    def _ask(self, **request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            log = self._log.read_text("utf-8", "replace")
            raise PeerFailedError(f"Hugging Face's Marian ended:\n{log[-2000:]}")
        fields: dict[str, Any] = json.loads(answer)
        return fields


@contextmanager
def marian_peer(
    python: Path, model: Transformer, positions: int, threads: int
) -> Iterator[MarianPeer]:
    """Start a peer with the weights of a model and `positions` positions; stop it afterwards."""
    require(python, "transformers")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = marian_config(model.config, model.vocab, positions)
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        save_file(marian_weights(model, positions), folder / "weights.safetensors")
        layer = model.encoder.layers[0]
        assert isinstance(layer, Layer)
        epsilon = layer.feed_forward_residual.norm.eps
        (folder / "norm.json").write_text(json.dumps(epsilon), "utf-8")
        # Do not let the peer import the caller's modules.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
        log = folder / "log.txt"
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                [python.absolute(), SCRIPT, folder, str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            ) as process,
        ):
            try:
                yield MarianPeer(process, folder, log)
            finally:
                process.terminate()


def marian_config(config: ModelConfig, vocab: Vocab, positions: int) -> dict[str, object]:
    """Return Marian's config of a model, or raise PeerMissingError if it cannot express it."""
    wanted = {
        "norm_order": "post",
        "positions": "sinusoidal",
        "tying": "three-way",
        "attention_bias": True,
    }
    for key, value in wanted.items():
        if (found := getattr(config, key)) != value:
            raise PeerMissingError(
                f"the run has model.{key} = {found!r}, and Hugging Face's Marian only {value!r}: "
                f"train one with --set model.{key}={str(value).lower()}"
            )
    if not config.d_k == config.d_v == config.d_model / config.num_heads:
        raise PeerMissingError("Hugging Face's Marian has d_k = d_v = d_model / num_heads only")
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (
            ("layers", config.num_layers),
            ("attention_heads", config.num_heads),
            ("ffn_dim", config.d_ff),
        )
    }
    return {
        **sides,
        "vocab_size": vocab.target_size,
        "d_model": config.d_model,
        "max_position_embeddings": positions,
        "activation_function": "relu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "pad_token_id": vocab.pad,
        "eos_token_id": vocab.eos,
        "bos_token_id": vocab.bos,
        "decoder_start_token_id": vocab.bos,
        "forced_eos_token_id": None,
    }


def marian_weights(model: Transformer, positions: int) -> dict[str, Tensor]:
    """Return a model's weights under Marian's names."""
    weights = {"model.shared.weight": model.target_embedding.weight.detach()}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        table = sinusoids(positions, model.config.d_model).float()
        weights[f"model.{side}.embed_positions.weight"] = table
        for number, layer in enumerate(stack.layers):
            assert isinstance(layer, Layer)
            parts = {
                "self_attn_layer_norm": layer.self_attention_residual.norm,
                "fc1": layer.feed_forward.inner,
                "fc2": layer.feed_forward.outer,
                "final_layer_norm": layer.feed_forward_residual.norm,
                **_attention("self_attn", layer.self_attention),
            }
            if layer.cross_attention is not None and layer.cross_attention_residual is not None:
                parts["encoder_attn_layer_norm"] = layer.cross_attention_residual.norm
                parts |= _attention("encoder_attn", layer.cross_attention)
            for name, part in parts.items():
                for key in ("weight", "bias"):
                    weights[f"model.{side}.layers.{number}.{name}.{key}"] = getattr(part, key)
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


@dataclass(frozen=True)
class _Affine:
    weight: Tensor
    bias: Tensor


def _attention(name: str, attention: MultiHeadAttention) -> dict[str, object]:
    """Split our fused projection into Marian's three."""
    fused = attention.in_projection
    parts = zip(fused.weight.chunk(3), fused.bias.chunk(3), strict=True)
    return {
        f"{name}.out_proj": attention.out_projection,
        **{f"{name}.{key}_proj": _Affine(*part) for key, part in zip("qkv", parts, strict=True)},
    }


def equal_share(ours: list[tuple[int, ...]], theirs: list[tuple[int, ...]]) -> float:
    """Return the share of outputs that are equal, token by token."""
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)
