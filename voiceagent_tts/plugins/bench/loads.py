"""Loads: when utterances start, their texts, how a text arrives and which are interrupted.

Plans depend on seeds alone.
"""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from voiceagent_tts.plugins.bench.texts import Text
from voiceagent_tts.plugins.bench.utterance import Request

TOKENS_PER_S = (30.0, 80.0)
"""Range of an LLM's speed; each utterance has one speed in it."""

_TOKEN = re.compile(r"\s?\S{1,4}|\s")
_MOST_TOKENS_IN_BURST = 6
_BARGE_IN_S = (0.2, 3.0)


@dataclass(frozen=True, slots=True)
class Load:
    """How many utterances there are at a time, or how often one starts.

    Attributes:
        together: callers of a closed loop; each starts its next utterance when the last has ended.
        per_s: Poisson arrivals per second of an open loop, whether or not the server keeps up.
        think_s: mean seconds that a caller of a closed loop thinks after having listened to the
            end, or interrupted; None for callers that do not listen.
    """

    together: int | None = None
    per_s: float | None = None
    think_s: float | None = None

    @property
    def name(self) -> str:
        """Name in tables and documents."""
        if self.per_s is not None:
            return f"{self.per_s:g}/s"
        return (
            f"{self.together} talking" if self.think_s is not None else f"{self.together} at once"
        )


@dataclass(frozen=True, slots=True)
class Style:
    """How the requests of a run are made.

    Attributes:
        texts: the texts, in an order that `seed` shuffles.
        has_tokens: whether texts arrive as an LLM writes them, or at once.
        barge_ins: share of utterances that the listener interrupts.
        seed: seed of everything that is random.
    """

    texts: Sequence[Text]
    has_tokens: bool = False
    barge_ins: float = 0.0
    seed: int = 1

    def requests(self) -> Iterator[Request]:
        """Requests without end; the texts in a new order each time around."""
        rng = random.Random(self.seed)
        for number in itertools.count():
            order = list(self.texts)
            rng.shuffle(order)
            for place, text in enumerate(order):
                is_cut = rng.random() < self.barge_ins
                yield Request(
                    text.text,
                    text.language,
                    tuple(written(text.text, rng)) if self.has_tokens else (),
                    rng.uniform(*_BARGE_IN_S) if is_cut else None,
                    self.seed + number * len(order) + place,
                )


def tokens_of(text: str) -> list[str]:
    """`text` in pieces like an LLM's tokens."""
    return _TOKEN.findall(text)


def written(text: str, rng: random.Random) -> Iterator[tuple[float, str]]:
    """`text` as a language model writes it: (seconds after the first token, characters).

    Tokens of four characters come at one speed in the mean, in bursts as networks deliver them.
    """
    tokens_per_s = rng.uniform(*TOKENS_PER_S)
    tokens = tokens_of(text)
    place = 0
    while place < len(tokens):
        burst = rng.randint(1, _MOST_TOKENS_IN_BURST)
        yield place / tokens_per_s, "".join(tokens[place : place + burst])
        place += burst


def arrivals(per_s: float, seed: int) -> Iterator[float]:
    """Seconds from the start of each arrival of a Poisson process, without end."""
    rng = random.Random(seed)
    at_s = 0.0
    while True:
        yield at_s
        at_s += rng.expovariate(per_s)
