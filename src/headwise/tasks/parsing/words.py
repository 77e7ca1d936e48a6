"""Raw English text as words, as the Penn Treebank separates them.

Clitics (n't, 's, 'll), punctuation, brackets and currency signs are words of their own; hyphenated
words, numbers, abbreviations, web and e-mail addresses stay whole. Straight double quotes become
`` and ''. All other characters but white space are kept as they are.
"""

import re

_MARKS = (
    r"()\[\]{}<>`\"“”„‘«»'’,:;!?¿¡.…—–―%‰•"
    r"$¢£¤¥\u20a0-\u20cf"  # Currencies.
    r"\u3001\u3002\u3008-\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"  # East Asian marks.
)
_EMOJI = r"\u2600-\u27bf\u2b50\U0001f000-\U0001faff"
_PLAIN = rf"[^{_MARKS}{_EMOJI}]"
"""A character of a word wherever it stands. Others are part of one in some places only."""

_ADDRESS = re.compile(
    r"(?:(?:https?|ftp)://|www\.|doi:)[^<>\"“”]*[^<>\"“”.,:;!?'’)\]}]"
    r"|[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+"
    r"|[:;]-?[()DPp]$",  # An emoticon stays whole, too.
    re.IGNORECASE,
)

# Each way to go on with a word consumes one character, and no two accept the same one: the time is
# linear in the length of the text.
_WORD = re.compile(
    rf"""
    \.{{2,}} | -{{2,}} | !+ | \?+ | `` | ''
    | \#(?=\d)
    | [A-Z]{{1,3}}\$(?![^\W\d])                       # US$
    | ['’](?i:s|m|d|ll|re|ve|em|til|cause|cuz|tis|twas|\d0?s?|\d\ds?)(?!{_PLAIN}|['’])
    | [{_EMOJI}][{_EMOJI}\u200d\ufe0f]*
    | (?P<word>(?:
        (?!--){_PLAIN}
        | (?<=\d)[,:](?=\d)                           # 1,000 and 10:30
        | \.(?=(?!--){_PLAIN})                        # 3.5 and example.com
        | (?<={_PLAIN})['’](?={_PLAIN})               # o'clock, and clitics
        | (?<=\d)%(?=-\w)                             # 62%-owned
    )+)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)

_OPENERS = "([{<\"“‘«„'`"
_CLOSERS = ")]}>\"”’»'.,:;!?…%"
_CLITICS = ("n't", "'ll", "'re", "'ve", "'s", "'m", "'d")
_MOST_CLITICS = 3
"""Of one word, as in mustn't've. The limit keeps the time linear."""

_COMPOUNDS = {
    **dict.fromkeys(("cannot", "gonna", "gotta", "wanna", "gimme", "lemme"), 3),
    **dict.fromkeys(("'tis", "'twas", "’tis", "’twas"), 2),
}
"""Words written as one, and where the second begins."""

_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_ABBREVIATIONS = """
Mr Mrs Ms Messrs Mlle Mme Dr Drs Prof Rev Hon Gen Col Maj Capt Cmdr Lt Sgt Gov Sen Sens Rep Reps
Pres Supt Jr Sr Esq St Ste Mt Ft Ave Blvd Rd Inc Corp Co Cos Ltd Pty Bros Assn Dept Univ
Jan Feb Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri
Ala Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan Ky La Mass Md Mich Minn Miss Mo Mont Neb
Nev Okla Ont Ore Pa Tenn Tex Va Vt Wash Wis Wyo
al approx abbr ca cf ed eds Eds esp est etc Fig Figs fig figs Ref Refs resp sp spp subsp var
viz vs v Eq Eqs
"""
_BEFORE_NUMBERS = "No Nos no nos p pp c Vol Vols vol vols Ch ch Chr chr Sec sec Art Mar"
"""Abbreviations only where a number follows: elsewhere most of them are words."""
_ALWAYS = frozenset(_ABBREVIATIONS.split())
_NUMBERED = frozenset(_BEFORE_NUMBERS.split())


def split_words(text: str) -> list[str]:
    """Return the words of a text; none for a text of white space."""
    return _Splitter(text).words


class _Splitter:
    """The words of one text, added chunk by chunk, as white space separates them."""

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        self._quote_is_open = False
        self._begin = self._end = 0
        """Where the chunk's opening punctuation ends, and where its closing punctuation begins."""
        self._chunks = text.split()
        self._last = max(
            (i for i, chunk in enumerate(self._chunks) if any(map(str.isalnum, chunk))), default=-1
        )
        """The last chunk that has a letter or digit."""
        for number, chunk in enumerate(self._chunks):
            self._add_chunk(number, chunk)

    def _add_chunk(self, number: int, chunk: str) -> None:
        self._begin = len(chunk) - len(chunk.lstrip(_OPENERS))
        self._end = len(chunk.rstrip(_CLOSERS))
        address = _ADDRESS.match(chunk, self._begin)
        self._add_words(number, chunk, 0, address.start() if address else len(chunk))
        if address:
            self.words.append(address[0])
            self._add_words(number, chunk, address.end(), len(chunk))

    def _add_words(self, number: int, chunk: str, begin: int, end: int) -> None:
        word_before = ""
        for match in _WORD.finditer(chunk, begin, end):
            piece, word = match[0], match["word"]
            if word:
                self._add_word(word)
            elif piece == "." and self._is_abbreviation(word_before, number, match.start()):
                self.words[-1] += "."
            elif piece == '"':
                self._add_quote(chunk, match.start())
            elif piece.lower() in _COMPOUNDS:
                self._add_word(piece)
            else:
                self._quote_is_open = (self._quote_is_open or piece == "``") and piece != "''"
                self.words.append(piece)
            word_before = word or ""

    def _add_word(self, word: str) -> None:
        clitics: list[str] = []
        while len(clitics) < _MOST_CLITICS and (length := _clitic_length(word)):
            clitics.append(word[-length:])
            word = word[:-length]
        if middle := _COMPOUNDS.get(word.lower()):
            self.words.append(word[:middle])
            word = word[middle:]
        self.words += [word, *reversed(clitics)]

    def _add_quote(self, chunk: str, position: int) -> None:
        if len(chunk) == 1:
            is_open = not self._quote_is_open
        else:
            follows_opener = position < self._begin or chunk[position - 1] in "([{<-—–/"
            is_open = follows_opener and position < self._end
        self._quote_is_open = is_open
        self.words.append("``" if is_open else "''")

    def _is_abbreviation(self, word: str, number: int, position: int) -> bool:
        """Return whether a dot in a chunk is part of the word before it."""
        word = word.rpartition("-")[2]
        if _ACRONYM.fullmatch(word):
            return True
        if number >= self._last and position >= self._end:
            return False  # The dot ends the sentence, as it does in the treebank: … Corp .
        if word in _NUMBERED:
            return any(chunk[0].isdigit() for chunk in self._chunks[number + 1 : number + 2])
        is_initial = len(word) == 1 and word.isupper() and word != "I"
        return is_initial or word in _ALWAYS


def _clitic_length(word: str) -> int:
    """Return the length of the clitic that a longer word ends in; 0 if there is none."""
    end = word[-3:].replace("’", "'").lower()
    return next((len(c) for c in _CLITICS if end.endswith(c) and len(c) < len(word)), 0)
