"""Speech with known word times: what parameters are tuned on, and what is reported.

The two never share a synthetic voice, a text of one, or a recording. All recorded telephone prompts
have one speaker, and prompts of both share phrases.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from testbed.agent_text import agent_sentences
from testbed.known_speech import KnownSpeech, flite
from testbed.recordings import Part
from testbed.sentences import ENGLISH, NUMBERS
from voiceagent_tts.text.words import split_words

ESPEAK_VOICES = (("f2", 0.8), ("m2", 1.0), ("f4", 1.1), ("m7", 1.3))
"""Held-out voices, each with a speed: parameters were tuned on f3, m5 and Annie."""


@dataclass(frozen=True, slots=True)
class SpeechSet:
    """Voices of flite, and what they say.

    Attributes:
        voices: names of the voices.
        texts: English sentences.
        numbers: English sentences with figures.
        people: which recordings and telephone prompts belong to the set.
    """

    voices: tuple[str, ...]
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    people: Part

    def few(self, sentences: int) -> "SpeechSet":
        """The first of the texts, for every voice."""
        return replace(self, texts=self.texts[:sentences], numbers=self.numbers[:sentences])

    def spoken(
        self, pace: float = 1.0, unwritten: Callable[[list[str]], Mapping[int, str]] | None = None
    ) -> list[KnownSpeech]:
        """Every text by every voice.

        Args:
            pace: 1.0 is the voice's own.
            unwritten: returns what is said before some words of a text, and the text lacks.

        Raises:
            FliteMissingError: flite is not installed.
        """
        spoken = (
            flite(text, voice, pace, unwritten and unwritten(_words_of(text)))
            for voice in self.voices
            for text in self.texts
        )
        return [one for one in spoken if one is not None]


def _words_of(text: str) -> list[str]:
    return [word.text for word in split_words(text)]


HELD_OUT = SpeechSet(("rms", "awb"), ENGLISH, NUMBERS, "test")
DEVELOPMENT = SpeechSet(
    ("kal16", "slt"),
    tuple(islice(agent_sentences(7), 30)),
    (
        "I have sent the code to the number that ends in 4471, is 15 minutes enough?",
        "The refund of 42 dollars and 10 cents should reach you by the 2nd of June.",
        "Table 12 is free from 7:30, and the kitchen closes at 10:15.",
        "You used 380 of your 500 minutes, so 120 are left until the 31st.",
    ),
    "development",
)
"""For tuning: never reported."""
