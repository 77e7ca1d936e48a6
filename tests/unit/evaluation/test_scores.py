"""All scores of a system: that they are the single ones, and what is noted beside them."""

import json

import pytest

from headwise.evaluation import (
    RESAMPLES,
    Scores,
    bleu,
    chrf,
    report,
    resampling,
    score,
    score_cells,
    scores,
    text_table,
    tokenised_bleu,
    tsv,
)

HYPOTHESES = ["Ein rich-text Format, ja.", "Der Hund bellt laut.", "Das Haus ist alt."]
REFERENCES = [["Ein rich-Text Format, ja.", "Ein Hund bellt laut.", "Das Haus ist sehr alt."]]


@pytest.fixture(scope="module")
def found() -> Scores:
    return score(HYPOTHESES, REFERENCES, language="de")


def test_all_scores_are_the_single_ones(found: Scores) -> None:
    assert found.bleu == bleu(HYPOTHESES, REFERENCES, resamples=RESAMPLES)
    assert found.bleu_lowercased == bleu(HYPOTHESES, REFERENCES, lowercase=True)
    assert found.bleu_lowercased.value > found.bleu.value
    assert found.chrf == chrf(HYPOTHESES, REFERENCES, resamples=RESAMPLES)
    assert found.tokenised == tokenised_bleu(HYPOTHESES, REFERENCES, language="de")
    assert (found.sentences, found.references, found.notes) == (3, 1, ())


def test_the_dictionary_survives_json(found: Scores) -> None:
    back = json.loads(json.dumps(found.to_dict()))
    assert back["bleu"]["value"] == found.bleu.value
    assert back["bleu"]["signature"] == found.bleu.signature
    assert found.chrf.interval is not None
    assert back["chrf"]["interval"]["margin"] == found.chrf.interval.margin
    assert back["tokenised"]["compounds"]["length_ratio"] == found.tokenised.compounds.length_ratio
    assert back["bleu_lowercased"]["interval"] is None


def test_the_report_shows_scores_signatures_and_which_to_publish(found: Scores) -> None:
    lines = report(found).splitlines()
    assert lines[0].split() == ["score", "95", "%", "interval"]
    assert found.bleu.interval is not None
    mean, margin = found.bleu.interval.mean, found.bleu.interval.margin
    assert lines[1].split() == [
        "BLEU",
        f"{found.bleu.value:.2f}",
        f"{mean:.2f}",
        "±",
        f"{margin:.2f}",
    ]
    assert lines[6].startswith("Moses BLEU (de), compounds split  ")
    assert lines[6].endswith(f" {found.tokenised.compounds.value:.2f}")
    assert f"BLEU  {found.bleu.signature}" in lines
    assert f"chrF  {found.chrf.signature}" in lines
    assert "3 sentences, 1 reference; length ratio 0.941 (16 tokens for 17)" in lines
    assert lines[-2].startswith("Publish BLEU with its signature")
    assert max(map(len, lines)) <= 100


def test_tabs_separate_every_score_in_full(found: Scores) -> None:
    header, *rows = [line.split("\t") for line in tsv(found).splitlines()]
    assert header == ["score", "value", "mean", "margin", "signature"]
    assert len(rows) == 7
    assert {len(row) for row in rows} == {5}
    assert float(rows[0][1]) == found.bleu.value
    assert [rows[0][4], rows[6][4]] == [
        found.bleu.signature,
        found.tokenised.compounds_lowercased.signature,
    ]


def test_cells_of_several_systems_make_a_table(found: Scores) -> None:
    cells = score_cells(found)
    table = text_table(["run", *cells], [["first", *cells.values()], ["b", *cells.values()]])
    lines = table.splitlines()
    assert [len(line) for line in lines] == [len(lines[0])] * 3
    assert lines[1].split()[:2] == ["first", f"{found.bleu.value:.2f}"]


def test_a_table_aligns_names_left_and_numbers_right() -> None:
    assert text_table(["", "x"], [["ab", "1"], ["c", "10.5"], ["d", ""]]) == (
        "       x\nab     1\nc   10.5\nd"
    )


@pytest.mark.parametrize(
    ("line", "language", "note"),
    [
        ("ja .", "de", "100 hypotheses end in ' .': if they are tokenised, detokenise them first"),
        ("ja.", "xx", "Moses has no rules for 'xx': those of English are used"),
        ("ja.", "zh", "13a and Moses do not cut 'zh' into words: compare by chrF"),
    ],
)
def test_what_makes_a_score_doubtful_is_noted(
    line: str, language: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if language == "zh":  # Building its tokenizer takes a second.
        german = tokenised_bleu(["a"], [["a"]], language="de")
        monkeypatch.setattr(scores, "tokenised_bleu", lambda *_, **__: german)
    lines = [line] * 100
    found = score(lines, [lines], language=language, resamples=0)
    assert found.notes == (note,)
    assert f"Note: {note}." in report(found)


def test_too_many_sentences_to_resample_are_scored_without_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert vars(scores)["MOST_RESAMPLED"] == resampling.MOST_RESAMPLED
    monkeypatch.setattr(scores, "MOST_RESAMPLED", 2)
    found = score(HYPOTHESES, REFERENCES, language="de")
    assert (found.bleu.interval, found.chrf.interval) == (None, None)
    assert found.notes == ("no interval: more than 2 sentences",)
    assert found.bleu == bleu(HYPOTHESES, REFERENCES)
