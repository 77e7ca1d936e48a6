"""Scores of translations, trees, classes and transcriptions: files and values in, numbers out."""

from headwise.evaluation.bracket_parameters import COLLINS, BracketParameters, read_parameters
from headwise.evaluation.bracket_scores import (
    BracketScores,
    BracketSummary,
    LabelScore,
    LengthScore,
    score_tree_files,
    score_trees,
)
from headwise.evaluation.bracket_table import (
    bracket_report,
    bracket_values,
    label_table,
    length_table,
    sentence_table,
)
from headwise.evaluation.brackets import SentenceScore, score_sentence
from headwise.evaluation.class_table import class_report, class_values
from headwise.evaluation.classes import (
    ClassScore,
    ClassScores,
    paired_difference,
    score_classes,
    score_labels,
)
from headwise.evaluation.corpus import References, read_corpus, read_tsv_corpus, refuse_nul
from headwise.evaluation.edit_table import alignment_lines, edit_report, edit_values
from headwise.evaluation.edits import Edit, EditCounts, TextErrors, align, count_edits, score_texts
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
from headwise.evaluation.tree_lines import TreeLine, read_tree_line

__all__ = [
    "COLLINS",
    "RESAMPLES",
    "SEED",
    "Bleu",
    "BracketParameters",
    "BracketScores",
    "BracketSummary",
    "ChrF",
    "ClassScore",
    "ClassScores",
    "Compared",
    "Comparison",
    "Edit",
    "EditCounts",
    "Interval",
    "LabelScore",
    "LengthScore",
    "References",
    "Scores",
    "SentenceScore",
    "TextErrors",
    "TokenisedBleu",
    "TreeLine",
    "align",
    "alignment_lines",
    "bleu",
    "bracket_report",
    "bracket_values",
    "chrf",
    "class_report",
    "class_values",
    "compare",
    "comparison_table",
    "count_edits",
    "edit_report",
    "edit_values",
    "label_table",
    "length_table",
    "moses_tokenizer",
    "paired_difference",
    "read_corpus",
    "read_parameters",
    "read_tree_line",
    "read_tsv_corpus",
    "refuse_nul",
    "report",
    "score",
    "score_cells",
    "score_classes",
    "score_labels",
    "score_sentence",
    "score_texts",
    "score_tree_files",
    "score_trees",
    "sentence_table",
    "split_compounds",
    "text_table",
    "tokenised_bleu",
    "tsv",
]
