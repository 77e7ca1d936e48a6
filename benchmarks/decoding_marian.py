"""Beam search with Hugging Face's Marian, started by decoding_peers.py in its own environment.

    python benchmarks/decoding_marian.py FOLDER THREADS

FOLDER holds a model: config.json, weights.safetensors, and the epsilon of its norms in norm.json.
Requests are JSON lines on stdin, answers JSON lines on stdout. This file does not import Headwise,
which is not installed in this environment.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import GenerationConfig, MarianConfig, MarianMTModel


def load(folder: Path, attention: str) -> MarianMTModel:
    config = MarianConfig(
        **json.loads((folder / "config.json").read_text("utf-8")), attn_implementation=attention
    )
    model = MarianMTModel(config).eval()
    weights = load_file(folder / "weights.safetensors")
    missing, unknown = model.load_state_dict(weights, strict=False)
    # Tied matrices, and a zero bias that our model does not have.
    tied = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
    if unknown or set(missing) - tied - {"lm_head.weight", "final_logits_bias"}:
        raise ValueError(f"these are not Marian's weights: {missing}, {unknown}")
    assert model.lm_head.weight is model.model.encoder.embed_tokens.weight
    epsilon = json.loads((folder / "norm.json").read_text("utf-8"))
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = epsilon
    # Marian's default config forces eos and forbids tokens, which costs time at every step.
    model.generation_config = GenerationConfig(
        decoder_start_token_id=config.decoder_start_token_id,
        pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id,
    )
    return model


def padded(sequences: list[list[int]], pad: int) -> Tensor:
    width = max(map(len, sequences))
    return torch.tensor([ids + [pad] * (width - len(ids)) for ids in sequences])


def generate(model: MarianMTModel, request: dict[str, Any]) -> list[list[int]]:
    """Translate sources, given without eos, in batches of similar length."""
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    sources, size = request["sources"], request["batch"]
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    outputs: list[list[int]] = [[] for _ in sources]
    search = {}
    if request["beam"] > 1:
        search = {"length_penalty": request["alpha"], "early_stopping": True}
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        src = padded([[*sources[number], eos] for number in numbers], pad)
        found = model.generate(
            input_ids=src,
            attention_mask=(src != pad).long(),
            num_beams=request["beam"],
            do_sample=False,
            # The length includes eos here.
            max_new_tokens=len(sources[numbers[0]]) + request["extra"] + 1,
            **search,
        )
        for number, row in zip(numbers, found.tolist(), strict=True):
            ids = row[1:]
            outputs[number] = ids[: ids.index(eos)] if eos in ids else ids
    return outputs


def logits(model: MarianMTModel, folder: Path, request: dict[str, Any]) -> None:
    """Write the logits after each token of the targets, which include bos."""
    src, tgt = (padded(request[side], model.config.pad_token_id) for side in ("sources", "targets"))
    found = model(
        input_ids=src,
        attention_mask=(src != model.config.pad_token_id).long(),
        decoder_input_ids=tgt,
    )
    save_file({"logits": found.logits.contiguous()}, folder / "logits.safetensors")


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]))
    models: dict[str, MarianMTModel] = {}
    for line in sys.stdin:
        request = json.loads(line)
        attention = request["attention"]
        if attention not in models:
            models[attention] = load(folder, attention)
        answer: dict[str, object] = {}
        start = time.perf_counter()
        with torch.inference_mode():
            if request["kind"] == "generate":
                answer["outputs"] = generate(models[attention], request)
            else:
                logits(models[attention], folder, request)
        answer["seconds"] = time.perf_counter() - start
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
