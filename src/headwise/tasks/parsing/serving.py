"""A parser on the server: POST /v1/parse."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from headwise.data.trees import Tree
from headwise.errors import RequestError
from headwise.tasks.panel import Panel
from headwise.tasks.parsing.attention import word_attention
from headwise.tasks.parsing.parser import Parse, Parser

_MOST_WORDS = 512
_MOST_WORK = 4096
"""Words of all sentences of a request together, and these times the beam: the server computes
nothing else meanwhile."""

_MOST_DRAWN = 200
"""Words of all sentences that are drawn or whose attention is returned."""


class ParseRequest(BaseModel):
    """Sentences to parse, and how."""

    model_config = ConfigDict(extra="forbid")

    q: str | list[str] = Field(description="A sentence, or several.")
    model: str | None = Field(None, description="A name of /v1/tasks; by default the first.")
    tokenized: bool = Field(
        False, description="Whether words are separated by white space already."
    )
    beam: int | None = Field(None, ge=1, le=64, description="Hypotheses kept open; default: run's.")
    svg: bool = Field(False, description="Whether to draw the trees.")
    attention: bool = Field(
        False, description="Whether to return what each label and tag attends to."
    )


class Node(BaseModel):
    """A constituent, or a word with its tag."""

    label: str = Field(description="The constituent's label, or the word's tag.")
    start: int = Field(description="The index of its first word.")
    end: int = Field(description="The index after its last word.")
    word: str | None = None
    children: list["Node"] = []


class ParsedSentence(BaseModel):
    """A sentence and its tree."""

    text: str = Field(description="The tree in brackets; empty if there are no words.")
    words: list[str]
    tree: Node | None
    log_prob: float
    is_repaired: bool = Field(description="Whether what the model wrote was no tree.")
    num_parts: int = Field(description="More than 1 for a sentence that was parsed in parts.")
    svg: str | None = None
    attention: list[list[float]] | None = Field(
        None, description="For each node, in the tree's order, a weight for each word."
    )


class ParseAnswer(BaseModel):
    """The trees, in the order of the sentences."""

    parses: list[ParsedSentence]


class ServedParser:
    """Parses sentences."""

    verb = "parse"
    request, answer = ParseRequest, ParseAnswer
    panel = Panel(
        title="Parse a sentence",
        label="Sentence",
        button="Parse",
        field="q",
        result="parses",
        kind="figures",
        live=True,
        fields={"svg": True, "attention": True},
    )

    def load(self, run: Path, checkpoint: str | None, device: str) -> Parser:
        """Load a run."""
        return Parser.load(run, checkpoint=checkpoint, device=device)

    def texts(self, asked: ParseRequest) -> list[str]:
        """Return the sentences."""
        return [asked.q] if isinstance(asked.q, str) else asked.q

    def handle(self, parser: Parser, asked: ParseRequest) -> ParseAnswer:
        """Parse the sentences."""
        sentences = [parser.words(text, tokenized=asked.tokenized) for text in self.texts(asked)]
        count, beam = sum(map(len, sentences)), parser.settings(beam=asked.beam).beam
        most = min(_MOST_WORDS, _MOST_WORK // beam)
        if asked.svg or asked.attention:
            most = min(most, _MOST_DRAWN)
        if count > most:
            raise RequestError(
                f"the {count:,} words are more than the {most:,} that a request may have with a "
                f"beam of {beam}"
            )
        parses = parser.parse_words(sentences, beam=asked.beam)
        return ParseAnswer(parses=[_parsed(parser, parse, asked) for parse in parses])


def _parsed(parser: Parser, parse: Parse, asked: ParseRequest) -> ParsedSentence:
    return ParsedSentence(
        text=parse.brackets,
        words=list(parse.words),
        tree=None if parse.tree is None else _node(parse.tree, 0),
        log_prob=parse.log_prob,
        is_repaired=parse.is_repaired,
        num_parts=parse.num_parts,
        svg=parse.svg() if asked.svg and parse.tree is not None else None,
        attention=word_attention(parser, parse) if asked.attention else None,
    )


def _node(tree: Tree, start: int) -> Node:
    children: list[Node] = []
    end = start + (tree.word is not None)
    for child in tree.children:
        children.append(_node(child, end))
        end = children[-1].end
    return Node(label=tree.label, start=start, end=end, word=tree.word, children=children)


SERVED = ServedParser()
