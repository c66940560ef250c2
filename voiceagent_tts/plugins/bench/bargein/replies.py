"""The script of the barge-in benchmark: replies, the pace of the LLM, and the moments of the cuts.

The agent's replies are in seven languages.
"""

import asyncio
import random
import tomllib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from voiceagent_tts.plugins.bench.loads import tokens_of

EARLIEST_CUT_S = 0.2
LATEST_CUT_S = 3.4
TOKENS_PER_S = 30.0
_FIRST_TOKEN_S = 0.1

USER_TEXT = "Oh wait a minute."
"""What the user says to interrupt a reply and to request the next one."""

REPLIES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("replies.toml").read_text("utf-8")
)
"""The agent's replies by language code."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A reply of the agent, and when the user interrupts it.

    Args:
        language: language code of the reply.
        text: text of the reply.
        at_s: played length at which the user interrupts.
        stall: (index of the token before which the LLM pauses, length in seconds), or None.
        fault_at_s: played length at which a fault is injected; None for no fault.
        patience_s: total silence within the reply after which the user interrupts earlier.
    """

    language: str
    text: str
    at_s: float
    stall: tuple[int, float] | None = None
    fault_at_s: float | None = None
    patience_s: float = 3.0

    async def written(self) -> AsyncIterator[str]:
        """Yield the tokens of the reply at the pace of a language model."""
        wait_s = _FIRST_TOKEN_S
        for index, token in enumerate(tokens_of(self.text)):
            if self.stall is not None and index == self.stall[0]:
                wait_s += self.stall[1]
            await asyncio.sleep(wait_s)
            yield token
            wait_s = 1 / TOKENS_PER_S


def plan(
    cuts: int,
    sessions: int,
    rng: random.Random,
    languages: Sequence[str],
    latest_s: float = LATEST_CUT_S,
) -> list[list[Cut]]:
    """The cuts of each session, spread evenly over a reply; one language per session.

    Args:
        cuts: number of cuts.
        sessions: largest number of sessions.
        rng: source of their moments.
        languages: codes of languages in `REPLIES`.
        latest_s: played length of the latest cut.
    """
    parts = [(index + rng.random()) / cuts for index in range(cuts)]
    rng.shuffle(parts)
    planned: list[list[Cut]] = [[] for _ in range(min(sessions, cuts))]
    for index, part in enumerate(parts):
        number, turn = index % len(planned), index // len(planned)
        language = languages[number % len(languages)]
        text = REPLIES[language][(number + turn) % len(REPLIES[language])]
        at_s = EARLIEST_CUT_S + part * (latest_s - EARLIEST_CUT_S)
        planned[number].append(Cut(language, text, at_s))
    return planned


def with_stalls(cuts: Sequence[Cut], rng: random.Random) -> list[Cut]:
    """`cuts` with a pause of the LLM in each reply; some cuts fall into the silence of the pause.

    The pauses are longer than the audio that a short reply has by then.
    """
    stalled: list[Cut] = []
    for cut in cuts:
        stall = (rng.choice(_word_borders(cut.text)), rng.uniform(1.5, 2.5))
        stalled.append(replace(cut, stall=stall, patience_s=rng.choice((0.4, 3.0))))
    return stalled


def _word_borders(text: str) -> list[int]:
    """Indices of the tokens in the first half of `text` that start a word."""
    tokens = tokens_of(text)
    has_spaces = " " in text
    half = range(1, len(tokens) // 2)
    return [index for index in half if tokens[index][0] == " " or not has_spaces]


def with_faults(cuts: Sequence[Cut], rng: random.Random) -> list[Cut]:
    """`cuts` with a fault at a random point before each cut."""
    return [replace(cut, fault_at_s=rng.uniform(0.1, cut.at_s)) for cut in cuts]
