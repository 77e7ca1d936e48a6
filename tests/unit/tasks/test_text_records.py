"""Text files to documents, tokens and blocks: what is kept, counted, held out and refused."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.config import TextDataConfig, Vocab
from headwise.data import ShardWriter, TokenShards
from headwise.data.tokenizer import load_stream
from headwise.errors import ConfigError, DataError
from headwise.files import Folder
from headwise.recipes import load_recipe
from headwise.tasks.language_model.files import TextFiles, read_text_blocks
from headwise.tasks.language_model.packing import BlockWriter
from headwise.tasks.language_model.prepare import TextReport, prepare_text
from headwise.tasks.language_model.records import Documents, RecordReader
from headwise.tasks.language_model.text_tokenizer import STREAM, TextStream, TextTokenizer
from tests.small_runs import WORDS, small_text_config, write_book

DATA = TextDataConfig(vocab_size=300, context=7)


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer.learn([" ".join(WORDS)] * 20, DATA)


def documents_of(
    files: TextFiles, data: TextDataConfig = DATA, *, lenient: bool = False, span_bytes: int = 0
) -> list[list[str]]:
    """Read the lines of each document."""
    found: list[list[str]] = []
    documents = Documents()
    reader = RecordReader(data=data, lenient=lenient, span_bytes=span_bytes)
    for block in read_text_blocks(files, lenient=lenient):
        for piece in reader.read(block)[0]:
            if documents.continues(piece):
                found[-1] += piece.lines
            elif piece.lines:
                found.append([*piece.lines])
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("span_bytes", [0, 3])
def test_documents_end_where_the_setting_says(
    size: int, span_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the lines fall into blocks and spans."""
    monkeypatch.setattr("headwise.tasks.language_model.files.BLOCK_LINES", size)
    (tmp_path / "a").write_text("\none\ntwo\n \n\nthree\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"four\n\nfive"))
    files = TextFiles.of([tmp_path / "a", tmp_path / "b.gz"])
    for documents, expected in (
        ("blank-line", [["one", "two"], ["three"], ["four"], ["five"]]),
        ("line", [["one"], ["two"], ["three"], ["four"], ["five"]]),
        ("file", [["", "one", "two", " ", "", "three"], ["four", "", "five"]]),
    ):
        data = TextDataConfig(documents=documents)  # type: ignore[arg-type]
        assert documents_of(files, data, span_bytes=span_bytes) == expected


def test_bytes_and_words_are_those_of_the_file(tmp_path: Path) -> None:
    text = "\nOne twö\n\n\nthree €\n"
    (tmp_path / "a").write_text(text)
    for documents in ("blank-line", "line", "file"):
        reader = RecordReader(data=TextDataConfig(documents=documents))
        (block,) = read_text_blocks(TextFiles.of(tmp_path / "a"), lenient=False)
        pieces, report = reader.read(block)
        assert sum(piece.num_bytes for piece in pieces) == len(text.encode())
        assert sum(piece.words for piece in pieces) == 4
        assert report.pairs == report.kept == 5


def test_a_column_of_a_table_holds_documents(tmp_path: Path) -> None:
    rows = ["one\ntwo", "three"]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"x": 1, "body": r}) + "\n" for r in rows))
    (tmp_path / "t.csv").write_text('x,body\n1,"one\ntwo"\n2,three\n')
    (tmp_path / "t.tsv").write_text("body\tx\none two\t1\nthree\t2\n")
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress((tmp_path / "t.tsv").read_bytes()))
    for name in ("t.jsonl", "t.csv"):
        assert documents_of(TextFiles.of(tmp_path / name, "body")) == [["one", "two"], ["three"]]
    for name in ("t.tsv", "t.tsv.gz"):
        assert documents_of(TextFiles.of(tmp_path / name, "body")) == [["one two"], ["three"]]


@pytest.mark.parametrize(
    ("name", "content", "message", "lenient"),
    [
        ("t.txt", b"fine\n\xff\nfine\n", r"t.txt:2: not UTF-8 text at byte 1", True),
        ("t.jsonl", b'{"body": "fine"}\n{"body"\n{"body": "fine"}\n', r":2: not JSON", True),
        ("t.jsonl", b'{"body": "fine"}\n{"body": 3}\n', r":2: has no text in 'body'", True),
        ("t.jsonl", b'{"body": "fine"}\n{"body": "\\ud800"}\n', r":2: half of a surr", True),
        ("t.tsv", b"x\tbody\n1\tfine\n2\n", r":3: 1 columns, but 'body' is column 2", True),
        ("t.csv", b"x,body\n1,fine\n2\n", r":3: 1 columns, but 'body' is column 2", True),
        ("t.csv", b'x,body\n1,fine\n2,"open\n', r"t.csv:3: not CSV", False),
        ("t.tsv", b"x\ty\n1\t2\n", r"t.tsv:1: has no column 'body': there is 'x', 'y'", False),
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(
    name: str, content: bytes, message: str, lenient: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    files = TextFiles.of(tmp_path / name, None if name == "t.txt" else "body")
    with pytest.raises(DataError, match=message):
        documents_of(files)
    if lenient:
        fine = [line for document in documents_of(files, lenient=True) for line in document]
        assert set(fine) == {"fine"}
    else:
        with pytest.raises(DataError, match=message):
            documents_of(files, lenient=True)


def test_files_and_columns_must_fit_each_other(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="t.csv: name the column that holds the text"):
        TextFiles.of(tmp_path / "t.csv")
    with pytest.raises(DataError, match="t.txt is plain text and has no columns"):
        TextFiles.of(tmp_path / "t.txt", "body")
    with pytest.raises(DataError, match="no text files are given"):
        TextFiles.of([])
    with pytest.raises(DataError, match="missing: cannot be read: No such file"):
        TextFiles.of(tmp_path / "missing").describe()


def test_a_line_with_nul_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("one\ntw\0o\nthree\r\n")
    (block,) = read_text_blocks(TextFiles.of(tmp_path / "t"), lenient=False)
    _, report = RecordReader(data=DATA).read(block)
    assert dict(report.dropped) == {"a NUL character": 1}
    assert report.places["a NUL character"] == [f"{tmp_path / 't'}:2"]
    assert dict(report.mended) == {"carriage return": 1}


TEXTS = st.text(
    st.characters(exclude_characters="\0\u2581", exclude_categories=["Cs"]), max_size=60
)


@given(TEXTS)
def test_decoding_gives_the_text_back_with_its_line_breaks(
    tokenizer: TextTokenizer, text: str
) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(TEXTS, TEXTS)
def test_a_stream_gives_what_follows_a_prompt(
    tokenizer: TextTokenizer, prompt: str, text: str
) -> None:
    before, ids = tokenizer.encode(prompt), tokenizer.encode(text)
    stream = TextStream(tokenizer, before)
    pieces = [*map(stream.add, ids), stream.finish()]
    expected = tokenizer.decode([*before, *ids])
    assert prompt + "".join(pieces) == expected
    assert not any("\ufffd" in piece for piece in pieces[:-1]) or "\ufffd" in prompt + text


def test_a_stream_holds_back_parts_of_a_character(tokenizer: TextTokenizer) -> None:
    stream = TextStream(tokenizer, tokenizer.encode("ban"))
    ids = tokenizer.encode("€ ban")
    pieces = [stream.add(number) for number in ids]
    assert "".join(pieces) == " € ban"
    assert "\ufffd" not in "".join(pieces)
    assert stream.add(ids[1]) == ""  # The first byte of three.
    assert stream.finish() == "\ufffd"


def test_a_long_line_is_streamed_as_it_is_decoded(tokenizer: TextTokenizer) -> None:
    text = " ".join(WORDS * 20) + "  €€ end"
    ids = tokenizer.encode(text)
    stream = TextStream(tokenizer, [])
    assert "".join([*map(stream.add, ids), stream.finish()]) == text


def test_words_are_the_same_tokens_at_the_start_of_a_line(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("ban\nban ban\n")
    word = tokenizer.encode("ban")
    assert ids == [*word, tokenizer.line_break, *word, *word, tokenizer.line_break]


def test_the_tokenizer_is_saved_under_its_streams_name(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    tokenizer.save(tmp_path)
    manifest = json.loads((tmp_path / "tokenizer" / "manifest.json").read_text())
    assert manifest["streams"] == {"text": "sentencepiece"}
    assert TextTokenizer.load(Folder.of(tmp_path)).subwords == tokenizer.subwords
    with pytest.raises(DataError, match="manifest.json: has no stream 'label'"):
        load_stream(tmp_path, "label")
    manifest["streams"]["text"] = "wordpiece"
    (tmp_path / "tokenizer" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="has another kind .'wordpiece'. of stream 'text'"):
        load_stream(tmp_path, "text")


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(2, 9))
def test_blocks_overlap_by_one_and_lose_nothing(sizes: list[int], context: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        expected = [Vocab.eos]
        with ShardWriter(Path(name) / "s", {STREAM: 50}) as shards:
            writer = BlockWriter(shards, context)
            for number, size in enumerate(sizes):
                writer.add(np.full(size, 10 + number), join=5 if number % 3 == 2 else None)
                if number:
                    expected.append(5 if number % 3 == 2 else Vocab.eos)
                expected += [10 + number] * size
            writer.finish()
        if sizes:
            expected.append(Vocab.eos)
        blocks = TokenShards(Path(name) / "s")
        found = [blocks.sequence(STREAM, n).tolist() for n in range(len(blocks))]
    assert writer.tokens == len(expected) - 1 == sum(len(block) - 1 for block in found)
    assert [token for block in found for token in block[1:]] == expected[1:]
    assert [block[0] for block in found] == expected[:-1:context][: len(found)]
    assert all(len(block) == context + 1 for block in found[:-1])


def prepared(tmp_path: Path, text: TextFiles, name: str = "d", *changes: str) -> TextReport:
    config = small_text_config(*changes)
    return prepare_text(text, config, tmp_path / name, processes=1)


def tokens_of(directory: Path, part: str) -> list[int]:
    shards = TokenShards(directory / part)
    return [t for n in range(len(shards)) for t in shards.sequence(STREAM, n)[1:].tolist()]


def test_text_is_prepared_whole(tmp_path: Path) -> None:
    book = write_book(tmp_path, documents=300)
    report = prepared(tmp_path, book)
    assert (report.unit, report.held_out_of) == ("documents", 300)
    assert 10 < report.held_out < 60
    first, second, *_ = report.lines()
    assert first.startswith(f"{report.train_blocks:,} blocks of 24 tokens to train on (")
    assert second == f"held out {report.held_out} of 300 documents to validate on"
    tokenizer = TextTokenizer.load(tmp_path / "d")
    found = []
    for part in ("train", "valid"):
        ends = tokens_of(tmp_path / "d", part)
        assert ends[-1] == Vocab.eos
        document: list[int] = []
        for token in ends:
            if token == Vocab.eos:
                found.append(tokenizer.decode(document))
                document = []
            else:
                document.append(token)
    text = book.paths[0].read_text()
    assert sorted(found) == sorted(part.strip("\n") for part in text.split("\n\n"))
    notes = TokenShards(tmp_path / "d" / "valid").notes
    held_out = found[-report.held_out :]
    assert notes["words"] == sum(len(each.split()) for each in held_out)
    assert notes["bytes"] == sum(len(each) + 2 for each in held_out) - text.endswith(
        held_out[-1] + "\n"
    )


def test_spans_are_held_out_where_documents_are_few(tmp_path: Path) -> None:
    book = write_book(tmp_path, documents=300)
    report = prepared(tmp_path, book, "d", "data.documents=file")
    assert report.unit == "spans"
    assert report.held_out_of > 50
    assert report.valid_blocks
    tokens = [*tokens_of(tmp_path / "d", "train"), *tokens_of(tmp_path / "d", "valid")]
    text = TextTokenizer.load(tmp_path / "d").decode(tokens)
    assert sorted(text.split()) == sorted(book.paths[0].read_text().split())


def test_the_result_does_not_depend_on_processes_or_on_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = write_book(tmp_path, documents=100)
    prepared(tmp_path, book, "one")
    monkeypatch.setattr("headwise.tasks.language_model.files.BLOCK_LINES", 7)
    prepare_text(book, small_text_config(), tmp_path / "two", processes=2)
    for part in ("train", "valid"):
        assert tokens_of(tmp_path / "one", part) == tokens_of(tmp_path / "two", part)


def test_validation_text_is_used_as_given(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    book, other = write_book(tmp_path), write_book(tmp_path / "v", documents=5, seed=2)
    report = prepare_text(book, small_text_config(), tmp_path / "d", valid=other, processes=1)
    assert report.held_out_of == 0
    assert TokenShards(tmp_path / "d" / "valid").notes["bytes"] == other.paths[0].stat().st_size


def test_nothing_to_train_on_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("\n\n")
    with pytest.raises(DataError, match="nothing to train on: of 2 lines none has text"):
        prepared(tmp_path, TextFiles.of(tmp_path / "t"))
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ["model.positions=learned", "model.max_positions=100"],
            "model.max_positions = 100 must be at least data.context = 128",
        ),
        (["train.batch_tokens=100"], "train.batch_tokens = 100 must be at least data.context"),
        (["train.bleu_pairs=5"], "train.bleu_pairs must be 0"),
        (["data.context=1"], "data.context = 1 must be at least 2"),
        (["decode.top_p=0"], "decode.top_p = 0.0 must be above 0"),
        (["data.joint=true"], "unknown key 'data.joint'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("lm-tiny", change)
