"""Load SentencePiece models from stdin and report on stdout what became of each.

This is a process of its own: SentencePiece is native code, and a crash ends the process.
Each model comes as its length in 4 bytes and its content; each answer is a line.
"""

import resource
import struct
import sys

from headwise.data.subwords import Subwords
from headwise.errors import HeadwiseError

_MOST_MEMORY = 2 << 30
_TEXTS = ["the cat sees", "", " \u2581 é \U0001f600", "ﬁ ㎏ Å", "x" * 1000]


def answer(model: bytes) -> str:
    try:
        subwords = Subwords(model)
        size = len(subwords)
        for text, ids in zip(_TEXTS, subwords.encode_all(_TEXTS), strict=True):
            if subwords.encode(text) != ids or not all(0 <= each < size for each in ids):
                return f"{text!r} was cut into {ids} of {size}"
            subwords.decode(ids).encode()
            subwords.tokens(ids)
    except HeadwiseError:
        return "refused"
    except Exception as error:  # Any of them is a bug, and is reported.
        return repr(error)
    return "loaded"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    while size := sys.stdin.buffer.read(4):
        model = sys.stdin.buffer.read(struct.unpack("<I", size)[0])
        print(answer(model), flush=True)


if __name__ == "__main__":
    main()
