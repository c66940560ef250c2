"""Kinds of long texts, of which an event loop may work on little in each of its turns."""

from collections.abc import Iterator, Mapping

CHARS = 20_000
MOST_CALLS = 40_000
"""Calls in one iteration of the loop: about 10 ms. When a text was read as a whole, they were
300,000 to 30,000,000."""
MOST_BYTES = 200_000
"""Bytes and characters that functions return in one iteration: well below a millisecond. When each
word was cut out of a copy of all text, they were 2,500,000."""

Lexicon = Mapping[str, object]
_SCRIPTS = {
    "latin": "words of a text ",
    "han": "汉字",
    "kana": "かなカナ",
    "hangul": "한국어 ",
    "thai": "ภาษาไทย",
    "arabic": "كلمات ",
    "devanagari": "शब्द ",
    "cyrillic": "слова ",
    "ligatures": "ﷺ ",
    "wide": "ＡＢＣ ",
    "digits": "1234567890 ",
    "emoji": "👩‍👧 ",
    "joined": "e\u0301\u0301 ",
}
_MARKS = ("", ". ", "! ", "。", ", ", "\n", "\n\n", "… ", ": ")
_STRUCTURES = (
    *("# a\n", "- a\n", "1. a\n", "> a\n", "|a|b|\n", "```\na\n", "[a](b) ", "https://a.b/c "),
    *("a@b.cd ", "[", "<a>b</a> ", "&amp; ", "**a** ", "Dr. ", "5:30 ", "$3.50 ", "!?", "  "),
    *('"a." ', 'a.""""" '),
)
_TAGS = (
    *(f'<sub alias="{"b" * 100}">a</sub> ', '<break time="1ms"/>', "<", "<spell>abc</spell>"),
    *("<<t|ə>> ", "<speak><sub ", '<phoneme ph="'),
)
LEXICONS: dict[str, tuple[str, Lexicon]] = {
    "said at length": ("a ", {"a": {"say": "b" * 200, "ipa": "a" * 200}}),
    "respelled": ("a ", {"a": "bcd " * 49}),
    "kana": ("あ", {"あ" * length: "b" * 200 for length in range(1, 101)}),
    "prefixes": ("a b ", {"A b " * length + "c": "b" for length in range(1, 24)}),
    "cases": ("a ", {"A " * length + "A": "b" for length in range(1, 49)}),
    "long": ("ab", {f"{number:03}" + "ﷺ" * 97: "b" for number in range(500)}),
    "many": ("w123 ", {f"w{number}": f"x{number}" for number in range(500)}),
    "undecided": ("a " * 30 + "b ", {"a " * 40: "b"}),
}


def kinds() -> Iterator[tuple[str, str, bool, Lexicon]]:
    """Sixty kinds of text: a name, 20,000 characters, whether they are markup, and a lexicon."""
    for name, words in _SCRIPTS.items():
        yield name, words, False, {}
        yield f"{name} in short sentences", f"{words[:4].strip()}. ", False, {}
    for mark in _MARKS:
        yield f"a letter and {mark!r}", f"a{mark}", False, {}
    for structure in _STRUCTURES:
        yield structure, structure, False, {}
    for tag in _TAGS:
        yield tag, tag, True, {}
    for name, (words, lexicon) in LEXICONS.items():
        yield f"lexicon: {name}", words, False, lexicon


KINDS = {name: (words, markup, lexicon) for name, words, markup, lexicon in kinds()}


SPREAD = ("han", "cyrillic", "emoji", "ligatures", "a letter and ', '", "**a** ", "<<t|ə>> ")
"""Kinds that are read to the end in every run; all others in a thorough one."""
