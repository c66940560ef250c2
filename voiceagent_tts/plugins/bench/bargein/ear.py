"""A second judge, which hears: it writes down the sound until the cut, as any recogniser does.

What it wrote is compared with what a speaker says for the reply, numbers and signs in words on both
sides: the beginning of the reply that is most like the transcript was heard. The judge knows the
reply only for that comparison; the words are the recogniser's. It does not judge milliseconds: of a
word that is cut off, a recogniser writes the word, another one, or nothing.
"""

from collections.abc import Sequence

from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.plugins.bench.bargein.heard import Heard
from voiceagent_tts.plugins.bench.bargein.judge import Recording
from voiceagent_tts.plugins.bench.quality.transcribers import Transcribe, open_transcriber
from voiceagent_tts.plugins.recordings.word_errors import said_words

WHISPER = "faster-whisper:tiny.en"
"""What `whisper` stands for."""


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
        transcript = [word.text for word in said_words(text, recording.language)]
        words = said_words(recording.text, recording.language)
        count = heard_count(transcript, [word.text for word in words])
        heard = frozenset(range(words[count - 1].owner + 1)) if count else frozenset[int]()
        return Heard(heard, heard, heard)


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
