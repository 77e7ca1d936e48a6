"""Trees as files, tokenizers and shards."""

import hashlib
import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

from headwise.config import AnyConfig, Config, Vocab
from headwise.data import TokenShards
from headwise.data.trees import MAX_DEPTH, Tree, read_tree, write_tree
from headwise.errors import ConfigError, DataError
from headwise.recipes import load_recipe
from headwise.tasks.parsing.files import TreeFiles
from headwise.tasks.parsing.grammar import Bounds
from headwise.tasks.parsing.linearise import linearise
from headwise.tasks.parsing.prepare import ALIGNED, TREE, TreeReport, prepare_trees, stored_tree
from headwise.tasks.parsing.tokenizer import (
    MOST_SUBWORDS,
    SOURCE,
    TARGET,
    TreeCounts,
    TreeTokenizer,
)
from tests.small_runs import small_tree_config, write_trees
from tests.trees import TREES, chain

Prepare = Callable[..., tuple[TreeReport, Path]]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TreeTokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    prepare_trees(write_trees(folder), small_tree_config(), folder / "data")
    return TreeTokenizer.load(folder / "data")


@pytest.fixture
def prepared(tmp_path: Path) -> Prepare:
    """Prepare trees with the tokenizer of others, which saves learning one."""

    def prepare(files: TreeFiles, *changes: str, **options: object) -> tuple[TreeReport, Path]:
        config = small_tree_config(*changes)
        report = prepare_trees(files, config, tmp_path / "data", **options)  # type: ignore[arg-type]
        return report, tmp_path / "data"

    return prepare


def write(directory: Path, *trees: str, name: str = "some.mrg") -> Path:
    path = directory / name
    path.write_text("".join(f"{tree}\n" for tree in trees))
    return path


def test_a_weight_stands_after_the_files_name() -> None:
    files = TreeFiles.weighted([Path(p) for p in ("a.mrg", "b.mrg:2", "c:0.25", "d:9:1", "e:x")])
    assert [str(path) for path in files.paths] == ["a.mrg", "b.mrg", "c", "d:9", "e:x"]
    assert files.weights == (1, 2, 0.25, 1, 1)
    for wrong in ("a:0", "a:0.001", "a:1001"):
        with pytest.raises(ConfigError, match=r"a: its weight .* must be from 0.01 to 1000"):
            TreeFiles.weighted([Path(wrong)])


def test_a_run_is_recognised_by_its_files_and_weights(tmp_path: Path) -> None:
    path = write(tmp_path, "(S (NN a))")
    files = TreeFiles.weighted([Path(f"{path}:3")])
    assert files.describe() == [["some.mrg", 11, 3.0]]
    with pytest.raises(DataError, match="gone: cannot be read"):
        TreeFiles.of(tmp_path / "gone").describe()


def test_trees_are_stored_as_words_symbols_and_where_the_next_word_is(
    prepared: Prepare, tokenizer: TreeTokenizer, tmp_path: Path
) -> None:
    text = "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT the) (NN cat))) (. .))"
    files = TreeFiles.of(write(tmp_path, text))
    report, data = prepared(files, valid=files, tokenizer=tokenizer)
    assert (report.train_trees, report.valid_trees) == (1, 1)
    assert report.lines() == [
        "1 trees to train on, 1 to validate on, vocabulary 290 and 14 symbols"
    ]
    for part in ("train", "valid"):
        shards = TokenShards(data / part)
        source, aligned, target = (
            shards.sequence(name, 0).tolist() for name in (SOURCE, ALIGNED, TARGET)
        )
        words = ["the", "dog", "sees", "the", "cat", "."]
        ids, ends = tokenizer.encode_words(words)
        assert source == ids
        assert [tokenizer.symbol(number) for number in target] == linearise(read_tree(text), "tags")
        # The words that are next after bos and after each symbol; at last none, which is eos.
        nexts = [0, 0, 0, 1, 2, 2, 2, 3, 3, 4, 5, 5, 5, 6, 6]
        assert aligned == [ends[word] for word in nexts]
        # The next word, or the end, comes right after a word's last subword.
        firsts = [0, *(end + 1 for end in ends[:-1])]
        for word, first, end in zip(words, firsts, ends, strict=False):
            assert ids[first : end + 1] == tokenizer.encode_words([word]).ids
        assert ends[-1] == len(ids)
    assert stored_tree(TokenShards(data / "valid"), 0) == read_tree(text)


def test_leaves_without_tags_are_one_symbol(tmp_path: Path) -> None:
    config = small_tree_config("data.leaves=placeholder")
    prepare_trees(write_trees(tmp_path), config, tmp_path / "data")
    names = TreeTokenizer.load(tmp_path / "data").symbols.names
    assert names[0] == "XX"
    assert all(name.startswith(("(", ")")) for name in names[1:])


def test_symbols_are_ordered_by_how_frequent_they_are(tokenizer: TreeTokenizer) -> None:
    names = tokenizer.symbols.names
    assert names[:4] == ("(NP", ")NP", "DT", "NN")
    assert set(names) == {"DT", "NN", "JJ", "IN", "VBZ", "."} | {
        bracket + label for bracket in "()" for label in ("S", "NP", "VP", "PP")
    }
    # One each in every tree: then by name.
    once = [name for name in names if name in ("(S", "(VP", ")S", ")VP", ".", "VBZ")]
    assert once == ["(S", "(VP", ")S", ")VP", ".", "VBZ"]
    assert tokenizer.root == "S"
    assert tokenizer.bounds == Bounds(depth=30, opens=8)


@given(TREES)
def test_a_trees_symbols_and_words_give_it_back(tokenizer: TreeTokenizer, tree: Tree) -> None:
    ids, leaves_before = tokenizer.encode_tree(tree, "tags")
    words = tree.words()
    assert leaves_before[-1] == len(words)
    encoded = tokenizer.encode_words(words)
    *ends, eos = encoded.ends
    assert (len(ends), eos) == (len(words), len(encoded.ids))
    assert all(1 <= end - last <= MOST_SUBWORDS for last, end in pairwise([-1, *ends]))
    if Vocab.unk not in ids:
        assert tokenizer.tree(ids, words) == (tree, False)


def test_a_symbol_that_training_has_not_seen_is_unknown(tokenizer: TreeTokenizer) -> None:
    tree = read_tree("(S (NP (UH oh)) (FRAG (NN dog)))")
    ids, leaves_before = tokenizer.encode_tree(tree, "tags")
    unknown = [place for place, number in enumerate(ids) if number == Vocab.unk]
    assert [linearise(tree, "tags")[place] for place in unknown] == ["UH", "(FRAG", ")FRAG"]
    assert leaves_before == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert tokenizer.tree(ids, ["oh", "dog"])[1]


def test_a_word_of_any_length_has_few_subwords(tokenizer: TreeTokenizer) -> None:
    assert len(tokenizer.encode_words(["ACGT" * 100_000]).ids) == MOST_SUBWORDS
    assert tokenizer.encode_words([]) == ([], [0])


def test_bounds_leave_room_beyond_what_was_seen() -> None:
    counts = TreeCounts()
    counts.add(linearise(chain(50), "tags"))
    assert counts.bounds() == Bounds(depth=59, opens=51)
    counts.add(linearise(chain(MAX_DEPTH), "tags"))
    assert counts.bounds() == Bounds(depth=MAX_DEPTH - 2, opens=MAX_DEPTH - 2)


def test_traces_are_removed_and_counted(
    prepared: Prepare, tokenizer: TreeTokenizer, tmp_path: Path
) -> None:
    path = write(
        tmp_path, "( (S (NP-SBJ-1 (-NONE- *)) (VP (VB see))) )", "(S (-NONE- *))", "(UH oh)"
    )
    report, data = prepared(TreeFiles.of(path), valid=TreeFiles.of(path), tokenizer=tokenizer)
    assert report.lines()[1:] == [
        f"training trees: left out 1 of 3 trees: nothing but traces ({path}:2)",
        f"validation trees: left out 1 of 3 trees: nothing but traces ({path}:2)",
    ]
    shards = TokenShards(data / "valid")
    stored = [write_tree(stored_tree(shards, number)) for number in range(len(shards))]
    assert stored == ["(S (VP (VB see)))", "(UH oh)"]


def test_malformed_trees_are_an_error_or_left_out(
    prepared: Prepare, tokenizer: TreeTokenizer, tmp_path: Path
) -> None:
    path = write(tmp_path, "(S (NN a))", "(S (NN b)", "(S (NN c))")
    files = TreeFiles.of(path)
    with pytest.raises(DataError, match=r"some.mrg:2:1: the tree that begins here has no end"):
        prepared(files, tokenizer=tokenizer)
    report, _ = prepared(files, valid=files, lenient=True, tokenizer=tokenizer)
    assert (report.train_trees, report.train.dropped["not readable"]) == (2, 1)


def test_a_weight_is_how_often_a_tree_is_seen(
    prepared: Prepare, tokenizer: TreeTokenizer, tmp_path: Path
) -> None:
    gold = write(tmp_path, *["(S (NN a))"] * 4, name="gold")
    other = write(tmp_path, *["(S (NN b))"] * 400, name="other")
    files = TreeFiles.weighted([Path(f"{gold}:3"), Path(f"{other}:0.25")])
    report, data = prepared(files, valid=TreeFiles.of(gold), tokenizer=tokenizer)
    train = TokenShards(data / "train")
    (a,), (b,) = (tokenizer.encode_words([word]).ids[-1:] for word in "ab")
    counts = {a: 0, b: 0}
    for number in range(len(train)):
        counts[int(train.sequence(SOURCE, number)[-1])] += 1
    assert counts[a] == 12
    assert 70 < counts[b] < 130
    assert report.train_trees == counts[a] + counts[b]
    shutil.rmtree(data)
    assert prepared(files, valid=TreeFiles.of(gold), tokenizer=tokenizer)[0] == report


def test_no_sentence_is_both_trained_and_validated_on(
    prepared: Prepare, tokenizer: TreeTokenizer, tmp_path: Path
) -> None:
    trees = [f"(S (NP (NN {word})) (VP (VB {verb})))" for word in "abcdef" for verb in "uvwxyz"]
    files = TreeFiles.weighted([Path(f"{write(tmp_path, *trees, *trees)}:2")])
    report, data = prepared(files, "data.holdout_trees=100", tokenizer=tokenizer)
    valid = TokenShards(data / "valid")
    assert 0 < report.valid_trees < 25
    assert report.valid_trees % 2 == 0
    assert report.train_trees == 2 * (2 * len(trees) - report.valid_trees)
    held_out = {tuple(valid.sequence(SOURCE, number)) for number in range(len(valid))}
    train = TokenShards(data / "train")
    assert not held_out & {tuple(train.sequence(SOURCE, n)) for n in range(len(train))}


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ([], "nothing to train on: of 0 trees none can be used"),
        (["(S (-NONE- *))"], "nothing to train on: of 1 trees none can be used"),
        (["(NN a)"], "no tree has a bracket around its words"),
    ],
)
def test_trees_that_teach_nothing_are_an_error(
    trees: list[str], message: str, prepared: Prepare, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        prepared(TreeFiles.of(write(tmp_path, *trees)))
    assert not (tmp_path / "data").exists()


def rewrite_table(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    path, manifest = folder / "tokenizer/target.json", folder / "tokenizer/manifest.json"
    content = json.dumps(change(json.loads(path.read_text()))).encode()
    path.write_bytes(content)
    about = json.loads(manifest.read_text())
    about["sha256"]["target.json"] = hashlib.sha256(content).hexdigest()
    manifest.write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: [t], "not a table of symbols"),
        (lambda t: {**t, "more": 1}, "not a table of symbols"),
        (lambda t: {**t, "symbols": "NN"}, "its symbols are not a list"),
        (lambda t: {**t, "symbols": ["NN"] * 10_001}, "not a list of at most 10,000"),
        (lambda t: {**t, "symbols": [*t["symbols"], "a b"]}, "'a b' is not a symbol"),
        (lambda t: {**t, "symbols": [*t["symbols"], "("]}, r"'\(' is not a symbol"),
        (lambda t: {**t, "symbols": [*t["symbols"], 7]}, "7 is not a symbol"),
        (lambda t: {**t, "symbols": [*t["symbols"], "NN"]}, "'NN' is in the vocabulary .* twice"),
        (lambda t: {**t, "symbols": ["NN", "(S"]}, r"has '\(S' without '\)S'"),
        (lambda t: {**t, "root": None}, "None is not a symbol"),
        (lambda t: {**t, "depth": 1_000_000}, "depth = 1000000 is not a number from 1 to 198"),
        (lambda t: {**t, "opens": True}, "opens = True is not a number"),
    ],
)
def test_a_wrong_table_is_refused(
    change: Callable[[dict[str, object]], object],
    message: str,
    tokenizer: TreeTokenizer,
    tmp_path: Path,
) -> None:
    tokenizer.save(tmp_path)
    assert TreeTokenizer.load(tmp_path).symbols == tokenizer.symbols
    rewrite_table(tmp_path, change)
    with pytest.raises(DataError, match=message):
        TreeTokenizer.load(tmp_path)


def test_a_changed_table_is_refused(tokenizer: TreeTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer/target.json"
    path.write_text(path.read_text().replace("30", "31"))
    with pytest.raises(DataError, match=r"target.json: damaged: its SHA-256"):
        TreeTokenizer.load(tmp_path)


def test_a_damaged_validation_tree_is_an_error(
    prepared: Prepare, tokenizer: TreeTokenizer, tmp_path: Path
) -> None:
    files = TreeFiles.of(write(tmp_path, "(S (NN a))"))
    _, data = prepared(files, valid=files, tokenizer=tokenizer)
    ids = data / "valid" / f"00000.{TREE}.ids"
    for content in (b"\xff\0" * 10, b"(\0" * 10):
        ids.write_bytes(content)
        with pytest.raises(DataError, match="tree 0 is damaged: prepare it anew"):
            stored_tree(TokenShards(data / "valid"), 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.tying=three-way"], "model.tying = 'three-way' must be .* task = 'parsing'"),
        (["train.bleu_pairs=5"], "train.bleu_pairs must be 0: a parser does not translate"),
        (["data.vocab_size=2"], "data.vocab_size = 2 must be at least 5"),
        (["data.leaves=words"], "data.leaves = 'words' must be one of 'tags', 'placeholder'"),
        (["data.f1_trees=-1"], "data.f1_trees = -1 must be a number, 0 or more"),
        (["decode.beam=0"], "decode.beam = 0 must be at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("parsing-small", changes)


def test_the_defaults_are_the_papers() -> None:
    config: AnyConfig = Config.from_dict({"task": "parsing", "model": {"tying": "two-way"}})
    assert config.data.vocab_size == 16_000
    decode = config.decode
    assert (decode.beam, decode.alpha, decode.max_extra_tokens) == (21, 0.3, 300)
