"""Which words a parser looks at when it writes the symbols of a tree."""

import torch

from headwise.config import Vocab
from headwise.tasks.parsing.parser import Parse, Parser


def word_attention(parser: Parser, parse: Parse) -> list[list[float]]:
    """Return a row of weights over the words for each label and tag of a parse, in its order.

    They are those of the last decoder layer when it writes the symbol, averaged over the heads;
    the weights of a word's subwords are added. What goes to the end of the sentence is left out,
    so a row may add up to less than 1. There are no rows for a sentence that was parsed in parts.
    """
    if parse.tree is None or parse.num_parts > 1:
        return []
    model, device = parser.model, parser.model.output.weight.device
    words = parser.tokenizer.encode_words(parse.words)
    ids, leaves_before = parser.tokenizer.encode_tree(parse.tree, parser.config.data.leaves)
    # A position predicts the symbol that follows it: the end is not a symbol of the tree.
    symbols, ends = ids[:-1], torch.tensor(words.ends[:-1], device=device)
    if len(ids) > parser.config.model.fitting(len(ids)):
        return []
    aligned = None
    if parser.config.model.aligned_input:
        reached = [words.ends[count] for count in leaves_before[: len(ids)]]
        aligned = torch.tensor([reached], device=device)
    with torch.inference_mode():
        weights = model.cross_attention(
            torch.tensor([[*words.ids, Vocab.eos]], device=device),
            torch.tensor([[model.vocab.start, *symbols]], device=device),
            parser.config.model.num_decoder_layers - 1,
            aligned,
        )
        mean = weights[0].mean(0)  # [T, S]
        of_word = torch.bucketize(torch.arange(len(words.ids), device=device), ends)
        summed = mean.new_zeros(len(ids), len(parse.words))
        summed.index_add_(1, of_word, mean[:, :-1])
    rows: list[list[float]] = summed.tolist()
    is_close = [parser.tokenizer.symbol(number).startswith(")") for number in ids]
    return [row for row, closes in zip(rows, is_close, strict=True) if not closes]
