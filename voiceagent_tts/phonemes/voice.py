"""A loaded voice, and what it has been given to say."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from voiceagent_tts.core import Word
from voiceagent_tts.phonemes.network import Network
from voiceagent_tts.phonemes.reading import Phonemes, Pronouncer
from voiceagent_tts.seam.events import VoiceDetails
from voiceagent_tts.text.pieces import TextPiece


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """A voice in memory.

    Attributes:
        details: its name, language and gender.
        network: makes its audio.
        pronouncer: reads texts in its language; shared by the voices of a language.
    """

    details: VoiceDetails
    network: Network
    pronouncer: Pronouncer

    def read(self, piece: TextPiece) -> Iterator[tuple[Phonemes, list[Word]]]:
        """Read a piece: what is said at once, with the words that begin in it, in order.

        A word belongs to the first part with a sound of it or of a later word.
        """
        words, given = piece.words, 0
        parts = list(self.pronouncer.phonemes(piece.said).parts())
        for index, part in enumerate(parts):
            is_last = index == len(parts) - 1
            after = len(words)
            if not is_last and part.offsets:
                after = bisect_left(words, part.offsets[-1] + 1, key=lambda word: word.char_start)
            yield part, list(words[given:after])
            given = max(given, after)
