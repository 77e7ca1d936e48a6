import random
from typing import Literal

import pytest

from headwise.config import DataConfig, Vocab
from headwise.data.subwords import Subwords, sample_pairs
from headwise.errors import DataError

WORDS = ["the", "a", "cat", "dog", "house", "sees", "runs", "small", "large", "green", "garden"]
WORDS += ["under", "over", "and", "with", "walks", "bird", "field", "river", "child", "mountain"]


def lines(count: int = 2000) -> list[str]:
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS, k=8)) for _ in range(count)]


@pytest.fixture(scope="module")
def subwords() -> Subwords:
    return Subwords.learn(lines(), DataConfig(vocab_size=330))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_learning_gives_the_size_and_the_special_ids_asked_for(
    kind: Literal["bpe", "unigram"],
) -> None:
    learned = Subwords.learn(lines(), DataConfig(vocab_size=300, subwords=kind))
    assert len(learned) == 300
    assert learned.tokens([Vocab.pad, Vocab.unk, Vocab.bos, Vocab.eos]) == [
        "<pad>",
        "<unk>",
        "<s>",
        "</s>",
    ]
    assert learned.decode(learned.encode("the cat sees")) == "the cat sees"


@pytest.mark.parametrize(
    "text",
    [
        "the  cat ",
        " a",
        "",
        "  ",
        "a\tb",
        "x\u2028y\u0085z",
        "שלום",
        "👩‍👩‍👧",
        "ﬁ e\u0301 Å",
        "<s> </s> <pad> <unk> <0x41>",
        "x" * 100_000,
    ],
)
def test_any_text_comes_back_as_it_was(subwords: Subwords, text: str) -> None:
    ids = subwords.encode(text)
    assert subwords.decode(ids) == text
    assert not {Vocab.pad, Vocab.unk, Vocab.bos, Vocab.eos} & set(ids)


def test_several_texts_are_encoded_as_each_alone(subwords: Subwords) -> None:
    texts = ["the cat", "", "  größe ", "x" * 10_000, "the cat"]
    assert subwords.encode_all(texts) == [subwords.encode(text) for text in texts]
    assert subwords.encode_all([]) == []


def test_a_model_is_its_bytes(subwords: Subwords) -> None:
    again = Subwords(subwords.model)
    assert again.encode("the green dog") == subwords.encode("the green dog")


def test_learning_again_gives_the_same_model() -> None:
    data = DataConfig(vocab_size=300)
    assert Subwords.learn(lines(), data).model == Subwords.learn(lines(), data).model


def test_frequent_words_become_single_subwords(subwords: Subwords) -> None:
    assert len(subwords.encode("the")) < 3
    assert len(subwords.encode("zyxwvut")) >= 5


def test_long_lines_are_learned_from() -> None:
    learned = Subwords.learn([" ".join(lines(500))], DataConfig(vocab_size=300))
    assert len(learned.encode("garden")) < len("garden")


def test_without_byte_fallback_an_unknown_character_is_unknown() -> None:
    learned = Subwords.learn(lines(), DataConfig(vocab_size=60, byte_fallback=False))
    assert Vocab.unk in learned.encode("cät")


def test_normalisation_is_a_choice() -> None:
    folded = Subwords.learn(lines(), DataConfig(vocab_size=300, normalization="nfkc_cf"))
    assert folded.decode(folded.encode("THE Cat")) == "the cat"


def test_a_vocabulary_the_text_cannot_support_says_how_large_it_can_be() -> None:
    with pytest.raises(DataError, match=r"supports at most (\d+) subwords, not 37,000"):
        Subwords.learn(lines(), DataConfig())
    with pytest.raises(DataError, match=r"alone need 2\d\d entries, and data.vocab_size is 100"):
        Subwords.learn(lines(), DataConfig(vocab_size=100))
    with pytest.raises(DataError, match="could not learn subwords from this text"):
        Subwords.learn([], DataConfig())


def test_the_size_advised_is_one_that_works() -> None:
    with pytest.raises(DataError, match="at most") as caught:
        Subwords.learn(lines(), DataConfig())
    advised = int(str(caught.value).split("data.vocab_size=")[1].split()[0])
    assert len(Subwords.learn(lines(), DataConfig(vocab_size=advised))) == advised


def test_a_text_with_fewer_subwords_gives_as_many_as_it_has() -> None:
    learned = Subwords.learn(iter(lines(50)), DataConfig(vocab_size=9000), may_be_fewer=True)
    assert 280 < len(learned) < 9000
    with pytest.raises(DataError, match=f"supports at most {len(learned)} subwords"):
        Subwords.learn(lines(50), DataConfig(vocab_size=9000))
    with pytest.raises(DataError, match="the characters of the text alone need"):
        Subwords.learn(lines(50), DataConfig(vocab_size=265), may_be_fewer=True)


def test_something_else_is_not_taken_for_a_model() -> None:
    with pytest.raises(DataError, match="not a SentencePiece model"):
        Subwords(b"something else")


def test_a_model_with_a_damaged_piece_is_refused() -> None:
    good = Subwords.learn(lines(), DataConfig(vocab_size=300)).model
    assert b"<0x61>" in good
    with pytest.raises(DataError, match="not a SentencePiece model"):
        Subwords(good.replace(b"<0x61>", b"\xfa0x61>", 1))


def test_a_sample_is_random_bounded_and_reproducible() -> None:
    pairs = [(str(n), str(-n)) for n in range(10_000)]
    sample = sample_pairs(iter(pairs), 1000, seed=1)
    assert len(sample) == len(set(sample)) == 1000
    assert set(sample) <= set(pairs)
    assert sample == sample_pairs(iter(pairs), 1000, seed=1)
    assert sample != sample_pairs(iter(pairs), 1000, seed=2)
    mean = sum(int(source) for source, _ in sample) / 1000
    assert 4500 < mean < 5500
    assert sample_pairs(pairs[:3], 1000, seed=1) == pairs[:3]
