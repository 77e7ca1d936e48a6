"""Files of trees to score, and EVALB's parameter files."""

from pathlib import Path

from hypothesis import strategies as st

from headwise.evaluation import read_parameters, score_tree_files
from tests.fuzz.conftest import Fuzz
from tests.fuzz.contract import result_or_refusal
from tests.fuzz.mutations import mutated

GOLD = (
    "(TOP (S (NP-SBJ (`` ') (NN é)) (VP (VBZ is) (-NONE- *)) (. .)))\n( (PRT (RB up)))\n".encode()
)
PARAMETERS = b"# all\nLABELED 1\nCUTOFF_LEN 40\nDELETE_LABEL ``\nQUOTE_LABEL NN\nEQ_LABEL S NP\n"


def test_trees_to_score(fuzz: Fuzz, tmp_path: Path) -> None:
    gold, test, parameter_file = tmp_path / "gold", tmp_path / "test", tmp_path / "prm"
    gold.write_bytes(GOLD)
    parameter_file.write_bytes(PARAMETERS + b"QUOTE_LABEL ``\n")
    parameters = read_parameters(parameter_file)

    def score(content: bytes) -> None:
        test.write_bytes(content)
        for pair in ((gold, test), (test, gold), (test, test)):
            result_or_refusal(score_tree_files, *pair, parameters)

    fuzz(mutated(GOLD) | st.binary(), score)


def test_parameter_files(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "own.prm"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        result_or_refusal(read_parameters, path)

    fuzz(mutated(PARAMETERS) | st.binary(), read)
