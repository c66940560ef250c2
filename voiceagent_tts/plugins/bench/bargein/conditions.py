"""What happens to a reply before the user interrupts it, against any service."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.bargein.replies import (
    LATEST_CUT_S,
    REPLIES,
    Cut,
    plan,
    with_faults,
    with_stalls,
)
from voiceagent_tts.plugins.bench.bargein.session import Fault


class Happening(StrEnum):
    """What may happen to a reply."""

    NOTHING = "steady"
    STALL = "stalls"
    BREAK = "breaks"

    @property
    def heading(self) -> str:
        """Its name in reports."""
        headings = {"stalls": "the LLM stalls", "breaks": "the connection breaks"}
        return headings.get(self.value, self.value)

    @property
    def fault(self) -> Fault | None:
        """What breaks."""
        return "connection" if self is Happening.BREAK else None


@dataclass(frozen=True, slots=True)
class Condition:
    """How the replies of a section go, and when they are interrupted.

    Attributes:
        happening: what happens to each reply before.
        cuts: number of interruptions.
        together: sessions at once; a session speaks one language, so there are as many in all as
            there are languages, or more.
        languages: language codes of the replies.
        latest_s: played length of the latest planned cut.
    """

    happening: Happening = Happening.NOTHING
    cuts: int = 40
    together: int = 5
    languages: tuple[str, ...] = ("en", "de", "fr", "es", "it")
    latest_s: float = LATEST_CUT_S

    def plans(self, rng: random.Random) -> list[list[Cut]]:
        """The cuts of each session."""
        sessions = max(self.together, len(self.languages))
        planned = plan(self.cuts, sessions, rng, self.languages, self.latest_s)
        match self.happening:
            case Happening.STALL:
                return [with_stalls(cuts, rng) for cuts in planned]
            case Happening.BREAK:
                return [with_faults(cuts, rng) for cuts in planned]
            case _:
                return planned


def conditions_of(happenings: Sequence[str], base: Condition) -> list[Condition]:
    """One condition for each name of a happening, otherwise as `base`.

    Raises:
        InvalidRequestError: a name or a language is unknown, or there is none.
    """
    _check("conditions", happenings, list(Happening))
    _check("languages", base.languages, list(REPLIES))
    return [replace(base, happening=Happening(name)) for name in happenings]


def _check(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    if not names or set(names) - set(known):
        raise InvalidRequestError(
            f"--{option}: expected some of {', '.join(known)}; got {', '.join(names) or 'none'}"
        )
