"""Decides from the sound alone which words were heard: energy and forced alignment.

The judge knows the text of a reply and the audio that was played, and nothing that a service says
about itself. Stretches without energy are pauses; the rest is aligned with the words
(`aligner.online`, whose reference is the embedded voice). It listens to all recordings of a voice
before it judges the first, so that it knows the voice's spectrum and pace.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from voiceagent_tts.aligner.online.aligner import OnlineAligner, OnlineSession
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, WordTimestamp
from voiceagent_tts.plugins.bench.bargein.heard import Heard, heard_in
from voiceagent_tts.text.words import split_words

_PUSH_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE


@dataclass(frozen=True, slots=True)
class Recording:
    """What was heard of a reply.

    Attributes:
        voice: name of the voice; recordings with equal names help each other.
        language: language code of the reply.
        text: the whole reply.
        pcm: its beginning, as it was played: PCM16, mono, 24 kHz.
    """

    voice: str
    language: str
    text: str
    pcm: bytes

    @property
    def samples(self) -> int:
        """Length in samples."""
        return len(self.pcm) // BYTES_PER_SAMPLE


class Judge:
    """Finds words in recordings.

    Raises:
        EngineError: the embedded voice cannot be loaded.
    """

    def __init__(self) -> None:
        self._aligner = OnlineAligner()

    def learn(self, recordings: Iterable[Recording]) -> None:
        """Get to know the voices of `recordings`.

        Raises:
            InvalidRequestError: there is no reference for a language; `invalid_language`.
        """
        for recording in recordings:
            self.word_times(recording)

    def word_times(self, recording: Recording) -> tuple[WordTimestamp, ...]:
        """The times of the words that the recording reaches; those after it are left out.

        Raises:
            InvalidRequestError: there is no reference for the language; `invalid_language`.
        """
        session = self._aligner.open(recording.language, recording.voice)
        session.append(split_words(recording.text))
        return (*_pushed(session, recording.pcm), *session.cut())

    def heard(self, recording: Recording) -> Heard:
        """The words that are heard in the recording.

        Raises:
            InvalidRequestError: there is no reference for the language; `invalid_language`.
        """
        return heard_in(self.word_times(recording), recording.samples)


def _pushed(session: OnlineSession, pcm: bytes) -> Iterable[WordTimestamp]:
    for start in range(0, len(pcm), _PUSH_BYTES):
        yield from session.push(pcm[start : start + _PUSH_BYTES])
