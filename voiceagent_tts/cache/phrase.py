"""A cached phrase: the audio of one segment, its words, and the bytes in which Redis keeps it."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from voiceagent_tts.core import BYTES_PER_SAMPLE, Segment, Word, WordTimestamp
from voiceagent_tts.text.words import split_words

_WORD_BYTES = 100
_OTHER_BYTES = 500


@dataclass(frozen=True, slots=True)
class Spoken:
    """The voice of a phrase.

    Attributes:
        voice: its name.
        content: hash of a clone's file; empty for a voice that belongs to the model.
        owner: the key that spoke the phrase: no other learns from a fast answer, or from equal
            audio, what it said. Empty for a phrase of everyone.
    """

    voice: str
    content: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class WordTime:
    """Time of a word, in samples from the first one of its phrase; fields as `WordTimestamp`."""

    start_sample: int
    end_sample: int | None
    confidence: float


@dataclass(frozen=True, slots=True)
class Phrase:
    """The audio of one segment as the engine made it: complete, unmarked, and not stretched.

    Attributes:
        text: what is said.
        spoken: the voice.
        pcm: PCM16, mono, 24 kHz.
        words: times of the segment's words, in order; None where nobody asked for them.
    """

    text: str
    spoken: Spoken
    pcm: bytes
    words: tuple[WordTime, ...] | None

    @property
    def samples(self) -> int:
        """Length in samples."""
        return len(self.pcm) // BYTES_PER_SAMPLE

    @property
    def size_bytes(self) -> int:
        """Memory that the phrase takes, estimated."""
        return len(self.pcm) + len(self.text) + _WORD_BYTES * len(self.words or ()) + _OTHER_BYTES

    def place(self, segment: Segment, start_sample: int) -> tuple[WordTimestamp, ...]:
        """Return the words of a segment that says this phrase from `start_sample` on.

        Empty if the phrase has no times.
        """
        if self.words is None:
            return ()
        words = words_of(segment)
        return tuple(
            WordTimestamp(word, time.start_sample, time.end_sample, time.confidence).later(
                start_sample
            )
            for word, time in zip(words, self.words, strict=True)
        )

    def dump(self) -> bytes:
        """Serialize: one line of JSON, then the audio."""
        words = None if self.words is None else [list(_fields(word)) for word in self.words]
        fields = {"text": self.text, "spoken": asdict(self.spoken), "words": words}
        return json.dumps(fields).encode() + b"\n" + self.pcm

    @classmethod
    def load(cls, data: bytes) -> "Phrase":
        """Parse the output of `dump`.

        Raises:
            ValueError: the bytes are no phrase of this version.
        """
        line, _, pcm = data.partition(b"\n")
        try:
            fields = json.loads(line)
            words = fields["words"]
            times = None if words is None else tuple(WordTime(*word) for word in words)
            return cls(fields["text"], Spoken(**fields["spoken"]), pcm, times)
        except (KeyError, TypeError) as error:
            raise ValueError("expected a phrase of this version") from error


def words_of(segment: Segment) -> list[Word]:
    """The words of a segment, as spans of the client's text."""
    return split_words(segment.text, segment.char_start)


def word_times(words: Iterable[WordTimestamp], start_sample: int) -> tuple[WordTime, ...]:
    """Times of a context's words, from the first sample of their phrase."""
    moved = (word.later(-start_sample) for word in words)
    return tuple(WordTime(each.start_sample, each.end_sample, each.confidence) for each in moved)


def _fields(word: WordTime) -> tuple[int, int | None, float]:
    return word.start_sample, word.end_sample, word.confidence
