"""Generate sentences of voice agents as language models write them; a seed determines them.

This module uses no server and no clock.
"""

import random
from collections.abc import Iterator

MIN_WORDS = 10
MAX_WORDS = 25

_OPENERS = (
    "Sure,",
    "Of course,",
    "Thanks for waiting,",
    "I see that,",
    "Good news today,",
    "Let me check that,",
    "No problem at all, Maria,",
    "Just to be sure, then,",
)
_STATEMENTS = (
    "I have moved your appointment to Thursday morning at nine thirty",
    "your order left our warehouse this morning and arrives on Friday",
    "the refund of 42 dollars should reach your account by Monday",
    "I can see two open invoices from March on your account",
    "the nearest branch is on Baker Street and opens at eight",
    "your flight to Lisbon is on time and boards in forty minutes",
    "we have one quiet room left with a view of the garden",
    "the technician will call you half an hour before the visit tomorrow",
    "your password was changed last night from a phone in Hamburg",
    "the table for four people is booked under the name Okafor",
    "I have sent the code to the number that ends in 4471",
    "the new plan costs three euros less and doubles your data",
)
_TAILS = (
    ".",
    ", is that right?",
    ", and there is nothing else to do.",
    ", so please keep your phone at hand.",
    ", would you like me to confirm it now?",
    ", but I can change that if you prefer.",
    " - you will get an email soon.",
)


def agent_sentences(seed: int) -> Iterator[str]:
    """Yield sentences of `MIN_WORDS` to `MAX_WORDS` words without end."""
    rng = random.Random(seed)
    while True:
        opener, statement, tail = (rng.choice(part) for part in (_OPENERS, _STATEMENTS, _TAILS))
        yield f"{opener} {statement}{tail}"


def agent_monologue(seed: int, words: int) -> str:
    """Return a text of at least `words` words, in whole sentences."""
    sentences: list[str] = []
    spoken_words = 0
    for sentence in agent_sentences(seed):
        sentences.append(sentence)
        spoken_words += len(sentence.split())
        if spoken_words >= words:
            break
    return " ".join(sentences)
