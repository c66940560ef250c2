"""Punctuation marks: those that end a sentence or a clause, and those that may follow one.

The one definition of these sets in the project. A wide mark (Chinese, Japanese) ends what stands
before it without white space after it.
"""

WIDE_SENTENCE_ENDS = frozenset("。！？｡")
SENTENCE_ENDS = WIDE_SENTENCE_ENDS | frozenset(".!?…؟۔।")

DASHES = frozenset("—–")
WIDE_CLAUSE_ENDS = frozenset("，、；：")
CLAUSE_ENDS = WIDE_CLAUSE_ENDS | DASHES | frozenset(",;:…،؛")
"""Marks that end a clause inside a sentence; an ellipsis ends a clause or a sentence."""

CLOSING = frozenset("\"'”’»)]」』）】》〉")
"""Quotes and brackets that close what stands before them."""

_SPOKEN_PAUSES = (SENTENCE_ENDS | CLAUSE_ENDS) - DASHES
"""Marks at which a voice pauses; a dash may also join two words or numbers."""


def last_mark(text: str) -> str:
    """The last character of `text` before its closing quotes and brackets; "" if there is none."""
    return text.rstrip(_CLOSING_CHARS)[-1:]


def ends_clause(text: str) -> bool:
    """Whether a voice pauses at the end of `text`: it ends with a mark, perhaps closed."""
    return last_mark(text.rstrip()) in _SPOKEN_PAUSES


_CLOSING_CHARS = "".join(sorted(CLOSING))
