"""Speech of the embedded voice with its native word times, by which a judge can be measured.

The variants of the voice differ from an aligner's reference in timbre, pitch and pace, but not in
pronunciation.
"""

from dataclasses import dataclass
from functools import cache

from voiceagent_tts.core import BYTES_PER_SAMPLE, Segment, WordTimestamp
from voiceagent_tts.espeak.catalogue import VoiceCatalogue
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.pieces import split_pieces
from voiceagent_tts.espeak.speech import Delivery, speak

_NORMAL_WORDS_PER_MINUTE = 175


@dataclass(frozen=True, slots=True)
class KnownSpeech:
    """A text, its speech, and the true times of its words.

    Attributes:
        language: code of the text's language.
        speaker: name of the voice.
        text: the spoken text.
        pcm: PCM16, mono, 24 kHz.
        words: the text's words with their true times.
    """

    language: str
    speaker: str
    text: str
    pcm: bytes
    words: tuple[WordTimestamp, ...]

    @property
    def samples(self) -> int:
        """Length of the audio in samples."""
        return len(self.pcm) // BYTES_PER_SAMPLE


def espeak(text: str, language: str, speaker: str, pace: float = 1.0) -> KnownSpeech:
    """Speak `text` with a voice of espeak, `pace` times as fast as normal."""
    library, catalogue = _espeak()
    voice = catalogue.resolve(speaker, language)
    chunks: list[bytes] = []
    words: list[WordTimestamp] = []
    end = 0
    for piece in split_pieces(Segment(text, 0), voice.language):
        delivery = Delivery(
            voice, round(_NORMAL_WORDS_PER_MINUTE * pace), piece.ends_clause, end == 0
        )
        speech = speak(library, piece, delivery, lambda: True)
        assert speech is not None, "nothing stops the speech"
        words += (word.later(end) for word in speech.words)
        chunks.append(speech.pcm)
        end += len(speech.pcm) // BYTES_PER_SAMPLE
    return KnownSpeech(language, speaker, text, b"".join(chunks), tuple(words))


@cache
def _espeak() -> tuple[EspeakLibrary, VoiceCatalogue]:
    library = EspeakLibrary.open()
    return library, VoiceCatalogue(library.voices(), library.variants())
