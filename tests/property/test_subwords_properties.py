"""Whatever is encoded comes back, to the last space."""

from hypothesis import given
from hypothesis import strategies as st

from headwise.config import DataConfig
from headwise.data.subwords import Subwords

SUBWORDS = Subwords.learn(["the cat sees a small dog"] * 50, DataConfig(vocab_size=290))

# NUL, line ends and SentencePiece's own mark for a space are no part of a line of text.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\u2581"))


@given(texts)
def test_decoding_inverts_encoding(text: str) -> None:
    assert SUBWORDS.decode(SUBWORDS.encode(text)) == text
