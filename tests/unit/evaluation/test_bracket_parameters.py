"""Parameter files of EVALB."""

from pathlib import Path

import pytest

from headwise.errors import DataError
from headwise.evaluation import COLLINS, BracketParameters, read_parameters

COLLINS_FILE = """\
## A comment
DEBUG 0
MAX_ERROR 10
CUTOFF_LEN 40
LABELED 1\t

DELETE_LABEL TOP
DELETE_LABEL -NONE-
DELETE_LABEL ,
DELETE_LABEL :
DELETE_LABEL ``
DELETE_LABEL ''
DELETE_LABEL .
DELETE_LABEL_FOR_LENGTH -NONE-
EQ_LABEL ADVP PRT
"""


def parameters(folder: Path, text: str) -> BracketParameters:
    path = folder / "my.prm"
    path.write_text(text)
    return read_parameters(path)


def test_our_default_is_collins(tmp_path: Path) -> None:
    assert parameters(tmp_path, COLLINS_FILE) == COLLINS


def test_an_empty_file_deletes_nothing(tmp_path: Path) -> None:
    assert parameters(tmp_path, "") == BracketParameters()


def test_every_keyword(tmp_path: Path) -> None:
    found = parameters(
        tmp_path,
        "LABELED 0\nCUTOFF_LEN 15\nCUTOFF_LEN 25\nQUOTE_LABEL POS\nEQ_WORD -LRB- [\nEQ_WORD a b\n",
    )
    assert found == BracketParameters(
        labelled=False,
        cutoff=25,
        quote_labels=frozenset(["POS"]),
        equal_words=frozenset([("(", "["), ("a", "b")]),
    )
    assert found.same_word("b", "a")
    assert not found.same_label("b", "a")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("DELETE_LABELS X", r"my\.prm:2: unknown keyword 'DELETE_LABELS': did you mean DELETE_L"),
        ("(S (NN a))", r"my\.prm:2: unknown keyword '\(S': known are DELETE_LABEL, .*MAX_ERROR$"),
        ("DELETE_LABEL", r"my\.prm:2: DELETE_LABEL takes 1 value, not 0$"),
        ("DELETE_LABEL A B", r"my\.prm:2: DELETE_LABEL takes 1 value, not 2$"),
        ("EQ_LABEL A", r"my\.prm:2: EQ_LABEL takes 2 values, not 1$"),
        ("CUTOFF_LEN forty", r"my\.prm:2: CUTOFF_LEN takes a number from 0, not 'forty'$"),
        ("CUTOFF_LEN -1", r"my\.prm:2: CUTOFF_LEN takes a number from 0, not '-1'$"),
        ("CUTOFF_LEN 9999999999", r"my\.prm:2: CUTOFF_LEN takes a number from 0, not '9+'$"),
        ("LABELED 2", r"my\.prm:2: LABELED is 1, or 0 for unlabelled brackets, not 2$"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        parameters(tmp_path, f"DELETE_LABEL X\n{line}\n")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no.prm: cannot be read: No such file"):
        read_parameters(tmp_path / "no.prm")
