"""Scores of translations: strings and files in, numbers with their signatures out."""

from headwise.evaluation.corpus import References, read_corpus, read_tsv_corpus, refuse_nul
from headwise.evaluation.metrics import Bleu, ChrF, bleu, chrf
from headwise.evaluation.resampling import RESAMPLES, SEED, Interval
from headwise.evaluation.scores import Scores, score
from headwise.evaluation.significance import Compared, Comparison, compare
from headwise.evaluation.table import comparison_table, report, score_cells, text_table, tsv
from headwise.evaluation.tokenised import (
    TokenisedBleu,
    moses_tokenizer,
    split_compounds,
    tokenised_bleu,
)

__all__ = [
    "RESAMPLES",
    "SEED",
    "Bleu",
    "ChrF",
    "Compared",
    "Comparison",
    "Interval",
    "References",
    "Scores",
    "TokenisedBleu",
    "bleu",
    "chrf",
    "compare",
    "comparison_table",
    "moses_tokenizer",
    "read_corpus",
    "read_tsv_corpus",
    "refuse_nul",
    "report",
    "score",
    "score_cells",
    "split_compounds",
    "text_table",
    "tokenised_bleu",
    "tsv",
]
