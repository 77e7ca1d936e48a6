"""The floating-point operations of a training, by formula and by torch's counter.

A multiplication and its addition are two operations. Softmax, norms, activations and the optimizer
are left out, as torch's counter leaves them out: they are a few percent.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from headwise.config import AnyConfig, ModelConfig, Vocab
from headwise.model import build_model
from headwise.tasks.table import load_task
from headwise.training.task import Task

_BACKWARD = 2
"""The backward pass of a product is two products."""


def pair_flops(model: ModelConfig, vocab: Vocab, source: int, target: int) -> int:
    """Return the operations of training on one pair of sequences, forward and backward.

    Paper: §3; the sizes of its projections, and the products of attention.
    """
    d, heads = model.d_model, model.num_heads
    keys, values = heads * model.d_k, heads * model.d_v
    feed_forward = 2 * d * model.d_ff

    def attention(queries: int, memory: int) -> int:
        projections = queries * d * keys + memory * d * (keys + values) + queries * values * d
        return projections + queries * memory * (keys + values)

    encoder = attention(source, source) + source * feed_forward
    decoder = attention(target, target) + attention(target, source) + target * feed_forward
    stacks = model.num_layers * encoder + model.num_decoder_layers * decoder
    products = stacks + target * d * vocab.target_size
    return 2 * (1 + _BACKWARD) * products


def count_training_flops(config: AnyConfig, vocab: Vocab, tokens: int) -> tuple[int, int, int]:
    """Count the operations of one step on about so many made-up target tokens.

    Return the count and the shape of the batch: its pairs, and the length of either side.
    """
    task: Task = load_task(config)
    model = build_model(config.model, vocab, config.row.assembly)
    objective = task.objective(model, config)
    batch: tuple[Any, ...] = task.example_batch(config, vocab, tokens)
    # The loss adds to a gradient in place, which torch's counter does not know.
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.addmm_: _count_product_added}
    )
    with sdpa_kernel(SDPBackend.MATH), counter:
        sums, _ = objective(*batch)
        sums.smoothed.backward()
    pairs, length = batch[0].shape
    return int(counter.get_total_flops()), pairs, length


def _count_product_added(
    _: Sequence[int], left: Sequence[int], right: Sequence[int], **__: object
) -> int:
    """Count the product of two matrices, given the shapes of addmm's arguments."""
    return 2 * left[0] * left[1] * right[1]
