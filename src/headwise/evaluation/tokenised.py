"""BLEU as in the paper: on tokens of the Moses tokenizer, with compounds split at their hyphens.

This is what tensor2tensor's get_ende_bleu.sh computes with Moses' tokenizer.perl and
multi-bleu.perl. docs/decisions/0008-scores.md says why it is not the figure to publish.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwise.evaluation.corpus import References, check_corpus
from headwise.evaluation.metrics import Bleu, measured_bleu

_COMPOUND = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True, kw_only=True)
class TokenisedBleu:
    """Tokenised BLEU, as it is and with compounds split, with and without regard to case.

    Paper: §6.1, Table 2 and Table 3; those are cased, with compounds split.
    """

    language: str
    plain: Bleu
    plain_lowercased: Bleu
    compounds: Bleu
    compounds_lowercased: Bleu


def tokenised_bleu(
    hypotheses: Sequence[str], references: References, *, language: str = "en"
) -> TokenisedBleu:
    """Score detokenised text with the tokenizer's rules for its language."""
    import sacremoses

    check_corpus(hypotheses, references)
    tokenise = moses_tokenizer(language)
    name = f"moses-{language}-{sacremoses.__version__}"
    plain = [tokenise(line) for line in hypotheses], _each(tokenise, references)
    compounds = [split_compounds(line) for line in plain[0]], _each(split_compounds, plain[1])
    split_name = f"{name}-compounds"
    return TokenisedBleu(
        language=language,
        plain=measured_bleu(*plain, lowercase=False, tokens=name),
        plain_lowercased=measured_bleu(*plain, lowercase=True, tokens=name),
        compounds=measured_bleu(*compounds, lowercase=False, tokens=split_name),
        compounds_lowercased=measured_bleu(*compounds, lowercase=True, tokens=split_name),
    )


def moses_tokenizer(language: str) -> Callable[[str], str]:
    """Return a function that tokenises a line as tokenizer.perl does, with a space between tokens.

    Hyphens stay, and what Moses escapes (&, |, <, >, quotes, brackets) is escaped. A language that
    Moses does not know gets the abbreviations of English, as with Moses.
    """
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language)

    def tokenise(line: str) -> str:
        return str(moses.tokenize(line, return_str=True))

    return tokenise


def split_compounds(line: str) -> str:
    """Split compounds at their hyphens, into tokens of their own: rich ##AT##-##AT## text format.

    As in the original script, matches do not overlap: a-b-c keeps its second hyphen.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def knows_language(language: str) -> bool:
    """Return whether Moses has rules for a language, by its two-letter code."""
    from sacremoses.corpus import NonbreakingPrefixes

    return language in NonbreakingPrefixes().available_langs.values()


def _each(change: Callable[[str], str], references: References) -> list[list[str | None]]:
    """Apply a function to every reference that is not None."""
    return [[None if line is None else change(line) for line in lines] for lines in references]
