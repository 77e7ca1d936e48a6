"""Greedy generation, one sequence and several at once: ours beside transformers' GPT-2.

    .peers/bin/python benchmarks/generation.py [--recipes lm-tiny gpt] [--rounds N]

`make peers` makes that environment. Models have the sizes of the recipes, in the layout that both
sides have: GPT-2's (pre-norm, tanh GELU, learned positions, tied output). Weights are random and
the same on both sides. Both read the same prompts and write as many tokens, with a cache of keys
and values, on as many threads; the outputs must be equal. They take turns over several rounds, and
the best round of each counts. The result is new tokens per second, prompts included in the time.

    python benchmarks/generation.py --run RUN [--prompts FILE] [--clients 32] [--rounds N]

measures a server instead: streaming clients together, and one after the other
(generation_clients.py). The prompts are the first words of the file's lines.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from generation_clients import measure_clients
from machine import machine

from headwise.config import AnyConfig, ModelConfig, Vocab
from headwise.model import LanguageModel, build_model
from headwise.model.layers import Layer
from headwise.recipes import load_recipe
from headwise.tasks.language_model.context import ContextModel
from headwise.tasks.language_model.generation import GenerationSettings, draw

RESULTS = Path(__file__).parent / "results"
REQUESTS = 3
"""Of each client of a server."""
PROMPT_WORDS = 8

PROMPT = 16
ROWS = (1, 16)
SPECIAL = {Vocab.pad, Vocab.bos, Vocab.eos}
"""Ids that ours never writes here and theirs may: where one comes up, other prompts are drawn."""

Tokens = list[list[int]]


def gpt2_layout(config: ModelConfig, context: int) -> ModelConfig:
    """Keep a recipe's sizes."""
    return replace(
        config,
        norm_order="pre",
        activation="gelu_tanh",
        norm_epsilon=1e-5,
        positions="learned",
        max_positions=context,
        scale_embeddings=False,
        dropout=0.0,
        attention_dropout=0.0,
    )


def make_peer(ours: LanguageModel, attention: str) -> Any:
    """Make transformers' model with the weights of ours."""
    import transformers

    config = ours.config
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=ours.vocab.target_size,
            n_positions=config.max_positions,
            n_embd=config.d_model,
            n_layer=config.num_layers,
            n_head=config.num_heads,
            n_inner=config.d_ff,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation=attention,
        )
    ).eval()
    there = dict(theirs.transformer.named_parameters())
    stack = ours.decoder
    here: dict[str, Any] = {"ln_f": stack.final_norm}
    for number, layer in enumerate(stack.layers):
        assert isinstance(layer, Layer)
        here |= {
            f"h.{number}.ln_1": layer.self_attention_residual.norm,
            f"h.{number}.attn.c_attn": layer.self_attention.in_projection,
            f"h.{number}.attn.c_proj": layer.self_attention.out_projection,
            f"h.{number}.ln_2": layer.feed_forward_residual.norm,
            f"h.{number}.mlp.c_fc": layer.feed_forward.inner,
            f"h.{number}.mlp.c_proj": layer.feed_forward.outer,
        }
    with torch.no_grad():
        there.pop("wte.weight").copy_(ours.embedding.weight)
        there.pop("wpe.weight").copy_(ours.positions.weight)
        for name, module in here.items():
            weight = module.weight.t() if ".c_" in name else module.weight
            there.pop(f"{name}.weight").copy_(weight)
            there.pop(f"{name}.bias").copy_(module.bias)
    assert not there, f"without a counterpart: {', '.join(there)}"
    return theirs


def generate_ours(model: LanguageModel, context: int, tokens: int, prompts: Tokens) -> Tokens:
    settings = GenerationSettings(temperature=0, max_tokens=tokens, stop_at_end=False)
    keys: list[tuple[int, ...]] = [(row,) for row in range(len(prompts))]
    with torch.inference_mode():
        found = draw(ContextModel(model, context), prompts, keys, settings)
    return [list(each.ids) for each in found]


def generate_theirs(model: Any, tokens: int, prompts: Tokens) -> Tokens:
    ids = torch.tensor(prompts)
    with torch.inference_mode():
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=Vocab.pad,
        )
    new: Tokens = found[:, PROMPT:].tolist()
    return new


def draw_prompts(rows: int, vocab_size: int, theirs: Callable[[Tokens], Tokens]) -> Tokens:
    """Draw prompts whose continuations have no special id."""
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        shape = (rows, PROMPT)
        prompts: Tokens = torch.randint(4, vocab_size, shape, generator=generator).tolist()
        if not SPECIAL & {token for row in theirs(prompts) for token in row}:
            return prompts
    raise SystemExit("every continuation has a special id: use another seed for the weights")


def measure(recipe: str, tokens: int, rounds: int) -> dict[str, Any]:
    config: AnyConfig = load_recipe(recipe)
    context: int = config.data.context
    tokens = min(tokens, context - PROMPT)
    vocab = Vocab.shared(config.data.vocab_size)
    torch.manual_seed(1)
    ours = build_model(gpt2_layout(config.model, context), vocab, "decoder").eval()
    peers = {attention: make_peer(ours, attention) for attention in ("sdpa", "eager")}
    result: dict[str, Any] = {"new_tokens": tokens, "prompt_tokens": PROMPT}
    for rows in ROWS:
        contenders: dict[str, Callable[[Tokens], Tokens]] = {
            "headwise": lambda prompts: generate_ours(ours, context, tokens, prompts)
        }
        for attention, peer in peers.items():
            contenders[f"transformers {attention}"] = partial(generate_theirs, peer, tokens)
        prompts = draw_prompts(rows, vocab.target_size, contenders["transformers sdpa"])
        expected = contenders["headwise"](prompts)
        best = dict.fromkeys(contenders, 0.0)
        for number in range(rounds):
            for name, contender in contenders.items():
                start = time.perf_counter()
                found = contender(prompts)
                seconds = time.perf_counter() - start
                assert found == expected, f"{recipe}, {rows} rows: {name} writes something else"
                best[name] = max(best[name], rows * tokens / seconds)
            print(f"{recipe}, {rows} rows: round {number + 1} of {rounds}", file=sys.stderr)
        peer_best = max(speed for name, speed in best.items() if name != "headwise")
        result[f"{rows} at once"] = {
            "tokens_per_second": best,
            "ratio": best["headwise"] / peer_best,
        }
    return result


def serve(options: argparse.Namespace) -> None:
    """Measure a server of a run."""
    lines = [""] if options.prompts is None else options.prompts.read_text("utf-8").splitlines()
    starts = [" ".join(line.split()[:PROMPT_WORDS]) for line in lines]
    prompts = [starts[number % len(starts)] for number in range(REQUESTS * options.clients)]
    found = measure_clients(
        options.run,
        prompts,
        clients=options.clients,
        tokens=options.tokens,
        rounds=options.rounds,
    )
    out = options.out or RESULTS / "generation-served.json"
    write(out, {"machine": machine(torch=torch.__version__), "rounds": options.rounds, **found})
    for name, speed in found["tokens_per_second"].items():
        first = found["first_text_ms"][name]
        print(
            f"{name:>12} {speed:9.1f} tokens/s, "
            f"first text p50 {first['p50']:.1f} ms, p95 {first['p95']:.1f} ms"
        )
    print(f"{'ratio':>12} {found['ratio']:9.2f}x, {found['texts_that_differ']} texts differ")


def write(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", nargs="+", default=["lm-tiny", "gpt"])
    parser.add_argument("--run", type=Path, help="serve this run to clients, instead of recipes")
    parser.add_argument("--prompts", type=Path, help="with --run: a text to take prompts from")
    parser.add_argument("--clients", type=int, default=32, help="with --run")
    parser.add_argument("--tokens", type=int, default=100, help="most new tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="with --recipes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.run is not None:
        serve(options)
        return
    import transformers

    torch.set_num_threads(options.threads)
    report = {
        "machine": machine(
            threads=options.threads,
            torch=torch.__version__,
            transformers=transformers.__version__,
        ),
        "rounds": options.rounds,
        "recipes": {
            recipe: measure(recipe, options.tokens, options.rounds) for recipe in options.recipes
        },
    }
    write(options.out or RESULTS / "generation.json", report)
    for recipe, found in report["recipes"].items():
        for rows in ROWS:
            one = found[f"{rows} at once"]
            for name, speed in one["tokens_per_second"].items():
                print(f"{recipe:>10}, {rows:2} at once {name:>20} {speed:9.1f} tokens/s")
            print(f"{recipe:>10}, {rows:2} at once {'ratio':>20} {one['ratio']:9.2f}x")


if __name__ == "__main__":
    main()
