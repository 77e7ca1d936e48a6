"""What EVALB prints: figures of small trees, and the layout of its tables."""

from headwise.evaluation import BracketScores, BracketSummary, SentenceScore

CASES: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "punctuation does not count, except for the length": (
        "(S (NP (PRP I)) (VP (VBP agree)) (. .))",
        "(S (NP (PRP I) (. .)) (VP (VBP agree)))",
        (3, 0, 3, 3, 3, 0, 2, 2),
    ),
    "a repeated bracket of the gold tree is found once": (
        "(NP (NP (NP (NN a) (NN b))))",
        "(NP (NP (NN a) (NN b)))",
        (2, 0, 2, 3, 2, 0, 2, 2),
    ),
    "a repeated bracket of the test tree is right once": (
        "(NP (NP (NN a) (NN b)))",
        "(NP (NP (NP (NN a) (NN b))))",
        (2, 0, 2, 2, 3, 0, 2, 2),
    ),
    "labels without function tags and indices": (
        "(S (NP-SBJ-1 (NN a)) (NP=2 (NN b)))",
        "(S (NP (NN a)) (NP-TMP (NN b)))",
        (2, 0, 3, 3, 3, 0, 2, 2),
    ),
    "tags as they are": (
        "(S (NP (NN-X a)) (NN b))",
        "(S (NP (NN a)) (NN b))",
        (2, 0, 2, 2, 2, 0, 2, 1),
    ),
    "ADVP is PRT, as a tag too": (
        "(S (ADVP (RB up)) (PRT (PRT b)))",
        "(S (PRT (RB up)) (ADVP (ADVP b)))",
        (2, 0, 3, 3, 3, 0, 2, 2),
    ),
    "TOP does not count": (
        "(TOP (S (NN a) (NN b)))",
        "(S (NN a) (NN b))",
        (2, 0, 1, 1, 1, 0, 2, 2),
    ),
    "a bracket without a label counts": (
        "( (S (NN a) (NN b)))",
        "(S (NN a) (NN b))",
        (2, 0, 1, 2, 1, 0, 2, 2),
    ),
    "a label that begins with a hyphen is none": (
        "(S (-NONE- (NN a)) (NN b))",
        "(S (-X- (NN a)) (NN b))",
        (2, 0, 2, 2, 2, 0, 2, 2),
    ),
    "a test bracket over two gold brackets crosses once": (
        "(S (NP (DT a) (NN b)) (VP (VB c) (NP (NN d) (NN e))))",
        "(S (DT a) (X (NN b) (VB c) (NN d)) (NN e))",
        (5, 0, 1, 4, 2, 1, 5, 5),
    ),
    "two test brackets cross one gold bracket": (
        "(S (X (NN a) (NN b)) (NN c))",
        "(S (NN a) (Y (Y (NN b) (NN c))))",
        (3, 0, 1, 2, 3, 2, 3, 3),
    ),
    "traces and what they leave empty do not count": (
        "(S (NP (-NONE- *)) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *T*)))))",
        "(S (VP (VB go)))",
        (1, 0, 2, 2, 2, 0, 1, 1),
    ),
    "a word alone": ("(S (NP (NN a)))", "(NN a)", (1, 0, 0, 2, 0, 0, 1, 1)),
    "several trees": ("(S (NN a) (NN b))", "(X (NN a)) (Y (NN b))", (2, 0, 0, 1, 2, 0, 2, 2)),
    "an empty bracket": ("(S (NN a))", "(S (NP) (NN a))", (1, 0, 1, 1, 1, 0, 1, 1)),
    "no test tree": ("(S (NN a) (NN b))", "", (2, 2, 0, 0, 0, 0, 0, 0)),
    "no words but punctuation": ("(S (. .))", "(S (. .))", (1, 2, 0, 0, 0, 0, 0, 0)),
    "another word": ("(S (NN a) (NN b))", "(S (NN a) (NN c))", (2, 1, 0, 0, 0, 0, 0, 0)),
    "a word too many": ("(S (NN a) (NN b))", "(S (NN a) (NN b) (NN c))", (2, 1, 0, 0, 0, 0, 0, 0)),
    "punctuation with a tag that is not deleted": (
        "(S (NN a) (, ,))",
        "(S (NN a) (NN ,))",
        (2, 1, 0, 0, 0, 0, 0, 0),
    ),
    "no gold tree": ("", "(S (NN a))", (0, 1, 0, 0, 0, 0, 0, 0)),
}
"""Gold and test trees for each rule, and what EVALB prints for them with COLLINS.prm: length,
status, matched, gold and test brackets, crossing brackets, words and correct tags."""

STATUS = {"ok": 0, "error": 1, "skip": 2}


def row_text(number: int, row: SentenceScore) -> str:
    """Return a sentence's line of the table."""
    return (
        f"{number:4}  {row.length:3}    {STATUS[row.status]}  "
        f"{row.recall:6.2f} {row.precision:6.2f}   {row.matched:3}    {row.gold:3}  {row.test:3}"
        f"    {row.crossing:3}   {row.words:4}  {row.correct_tags:4}   {row.tagging_accuracy:6.2f}"
    )


def total_text(total: BracketSummary) -> str:
    """Return the line below the table."""
    return (
        f"                {total.recall:6.2f} {total.precision:6.2f} {total.matched:6} "
        f"{total.gold:5} {total.test:5}  {total.crossing:5}"
        f"  {total.words:5} {total.correct_tags:5}   {total.tagging_accuracy:6.2f}"
    )


def summary_text(title: str, summary: BracketSummary) -> list[str]:
    """Return the lines of a block of the summary."""
    counts = {
        "Number of sentence": summary.sentences,
        "Number of Error sentence": summary.errors,
        "Number of Skip  sentence": summary.skipped,
        "Number of Valid sentence": summary.scored,
    }
    figures = {
        "Bracketing Recall": summary.recall,
        "Bracketing Precision": summary.precision,
        "Bracketing FMeasure": summary.f1,
        "Complete match": summary.complete_match,
        "Average crossing": summary.average_crossing,
        "No crossing": summary.no_crossing,
        "2 or less crossing": summary.two_or_less_crossing,
        "Tagging accuracy": summary.tagging_accuracy,
    }
    return [
        f"-- {title} --",
        *(f"{name:25} = {count:6}" for name, count in counts.items()),
        *(f"{name:25} = {figure:6.2f}" for name, figure in figures.items()),
    ]


def summaries_text(scores: BracketScores) -> list[str]:
    """Return both blocks of the summary, without empty lines."""
    return [
        *summary_text("All", scores.overall),
        *summary_text(f"len<={scores.cutoff}", scores.short),
    ]


def case_figures(row: SentenceScore) -> tuple[int, ...]:
    """Return a sentence's figures in the order of `CASES`."""
    counts = row.matched, row.gold, row.test, row.crossing, row.words, row.correct_tags
    return row.length, STATUS[row.status], *counts
