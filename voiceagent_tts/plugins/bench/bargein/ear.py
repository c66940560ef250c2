"""A second judge, which hears: it writes down the sound until the cut, as any recogniser does.

What it wrote is compared with what a speaker says for the reply, numbers and signs in words on both
sides: the beginning of the reply that is most like the transcript was heard. The judge knows the
reply only for that comparison; the words are the recogniser's. It does not judge milliseconds: of a
word that is cut off, a recogniser writes the word, another one, or nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.plugins.bench.bargein.heard import Heard
from voiceagent_tts.plugins.bench.bargein.judge import Recording
from voiceagent_tts.plugins.bench.quality.transcribers import Transcribe, open_transcriber
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import split_words

WHISPER = "faster-whisper:tiny.en"
"""What `whisper` stands for."""


@dataclass(frozen=True, slots=True)
class _Spoken:
    """A word that is said, and the index in the reply of the word that it is said for."""

    text: str
    owner: int


class Ear:
    """Hears which words of a reply were said in a recording.

    Args:
        transcribe: the recogniser.
    """

    def __init__(self, transcribe: Transcribe) -> None:
        self._transcribe = transcribe

    @classmethod
    def open(cls, address: str) -> "Ear":
        """Make one of a recogniser's address, as in `bench quality`; `whisper` is a small one.

        Raises:
            InvalidRequestError: there is no such recogniser, or its package is missing.
        """
        return cls(open_transcriber(WHISPER if address == "whisper" else address))

    def heard(self, recording: Recording) -> Heard:
        """The words of the reply that are heard in the recording.

        Raises:
            EngineError: the recogniser failed.
        """
        text = self._transcribe(pcm_to_float(recording.pcm), recording.language)
        transcript = [word.text for word in spoken_words(text, recording.language)]
        words = spoken_words(recording.text, recording.language)
        count = heard_count(transcript, [word.text for word in words])
        heard = frozenset(range(words[count - 1].owner + 1)) if count else frozenset[int]()
        return Heard(heard, heard, heard)


def spoken_words(text: str, language: str) -> list[_Spoken]:
    """What a speaker says for a text: small letters without marks, numbers in words."""
    spoken = normalize(said(text, 0, ()), language, reads_digits=False)
    words: list[_Spoken] = []
    owners = split_words(text)
    owner = 0
    for word in split_words(spoken.text):
        offset = spoken.offsets[word.char_start]
        while owner + 1 < len(owners) and owners[owner + 1].char_start <= offset:
            owner += 1
        parts = "".join(c if c.isalnum() or c in "'’" else " " for c in word.text.casefold())
        words += (_Spoken(part.strip("'’"), owner) for part in parts.split())
    return [word for word in words if word.text]


def heard_count(transcript: Sequence[str], reply: Sequence[str]) -> int:
    """Number of words of `reply` whose beginning is most like `transcript`; the most of equals.

    A word that was heard as another one counts as heard if both begin alike, as those do that are
    cut off; any other word that is not in the reply was never said.
    """
    costs = [float(place) for place in range(len(reply) + 1)]
    for row, heard in enumerate(transcript, start=1):
        above, costs = costs, [float(row)]
        for place, word in enumerate(reply):
            changed = above[place] + _difference(heard, word)
            costs.append(min(changed, above[place + 1] + 1, costs[place] + 1))
    least = min(costs)
    return max(place for place, cost in enumerate(costs) if cost == least)


def _difference(one: str, other: str) -> float:
    if one == other:
        return 0.0
    return 1.0 if one[0] == other[0] else 1.5
