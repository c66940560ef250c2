"""Phrases: the audio of one segment, and the key that finds it.

Everything that shapes the sound of a segment is in its key, hashed. What the client's audio format,
the pacing and the transport do to the audio comes after the cache and is in no key.
"""

import asyncio
import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from voiceagent_tts import __version__
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.core import BYTES_PER_SAMPLE, Segment, Word, WordTimestamp
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.seam.commands import Feeding
from voiceagent_tts.text.cleaning import speakable
from voiceagent_tts.text.readings import Said, said
from voiceagent_tts.text.words import split_words

_FORMAT = 3
"""Version of the keys: after a change no stored phrase is found. `Phrase.dump` keeps its names, as
servers of other versions read it too, and drop the phrases of a clone that is removed."""
_WORD_BYTES = 100
_OTHER_BYTES = 500

# Phrases.


@dataclass(frozen=True, slots=True)
class PhraseVoice:
    """The voice of a phrase.

    Attributes:
        content: hash of a clone's file; empty for a voice that belongs to the model.
        owner: the key that the phrase was spoken for. Other keys do not use it, so that neither a
            fast answer nor equal audio tells them what was said. Empty for a shared phrase.
    """

    name: str
    content: str = ""
    owner: str = ""


class VoiceContents:
    """Hashes the files of clones, each version once."""

    def __init__(self, folder: VoiceFolder | None) -> None:
        self._folder = folder
        self._known: dict[str, tuple[object, str]] = {}
        """Version and hash of each clone's file."""

    async def load(self, name: str) -> PhraseVoice:
        """Return the voice as it is stored now; its file is read in a thread if it is new."""
        if self._folder is None or name not in self._folder:
            self._known.pop(name, None)
            return PhraseVoice(name)
        return await asyncio.to_thread(self._read, name)

    def known(self, name: str) -> PhraseVoice:
        """Return the voice as it was when it was loaded."""
        _, content = self._known.get(name, (None, ""))
        return PhraseVoice(name, content)

    def is_current(self, voice: PhraseVoice) -> bool:
        """Whether the voice has not been replaced or removed since it was loaded."""
        version, content = self._known.get(voice.name, (None, ""))
        return content == voice.content and version == self._version(voice.name)

    def withdrawn(self, voices: Iterable[PhraseVoice]) -> set[PhraseVoice]:
        """Return the clones that were replaced or removed. Reads files, so call it in a thread."""
        clones = {voice for voice in voices if voice.content}
        return {voice for voice in clones if self._read(voice.name).content != voice.content}

    def _read(self, name: str) -> PhraseVoice:
        version = self._version(name)
        if version is None or self._folder is None:
            self._known.pop(name, None)
            return PhraseVoice(name)
        known = self._known.get(name)
        if known is None or known[0] != version:
            try:
                content = hashlib.sha256(self._folder.read(name)).hexdigest()
            except InvalidRequestError:  # removed at this moment
                return PhraseVoice(name)
            self._known[name] = known = (version, content)
        return PhraseVoice(name, known[1])

    def _version(self, name: str) -> object:
        if self._folder is None:
            return None
        try:
            return self._folder.version(name)
        except InvalidRequestError:
            return None


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
        pcm: PCM16, mono, 24 kHz.
        words: times of the segment's words, in order; None where nobody asked for them.
    """

    text: str
    voice: PhraseVoice
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

    def timed_words(self, segment: Segment, start_sample: int) -> tuple[WordTimestamp, ...]:
        """Return the words of a segment that says this phrase, which starts at `start_sample`.

        Returns an empty tuple if the phrase has no word times.
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
        voice = self.voice
        spoken = {"voice": voice.name, "content": voice.content, "owner": voice.owner}
        fields = {"text": self.text, "spoken": spoken, "words": words}
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
            spoken = fields["spoken"]
            voice = PhraseVoice(spoken["voice"], spoken["content"], spoken["owner"])
            return cls(fields["text"], voice, pcm, times)
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


# Keys.


@dataclass(frozen=True, slots=True)
class SynthesisParams:
    """Everything that shapes the sound of a context, except its text.

    Attributes:
        revision: weights and numerics of the model.
        speed: speed at which the engine speaks; 1.0 where the server stretches its audio instead.
        seed: the client's seed; None for a random one.
        feeding: how the text reaches the engine, where a seed makes that audible; else None.
    """

    engine: str
    model: str
    revision: str
    voice: PhraseVoice
    instruct: str | None
    speed: float
    seed: int | None
    feeding: Feeding | None


@dataclass(frozen=True, slots=True)
class SegmentVariant:
    """How the audio of a segment differs with its position in the context.

    Attributes:
        language: language code; None if the engine chooses.
        lacks_lead: whether the silence before the first sound is left out.
        lacks_pause: whether the pause after the segment is left out, as no text follows.
    """

    language: str | None
    lacks_lead: bool = False
    lacks_pause: bool = False


@dataclass(frozen=True, slots=True)
class PhraseKey:
    """A segment's key, the text that it says, and whose it is: an id of an API key, or nobody's."""

    digest: str
    text: str
    owner: str = ""


def said_text(segment: Segment) -> str:
    """What a segment says: with its readings, and without characters that are not read aloud."""
    return _said_of(segment).text.strip()


def _said_of(segment: Segment) -> Said:
    """As `said`; most segments have no readings, and take less time without it."""
    if segment.readings:
        return said(segment.text, segment.char_start, segment.readings)
    cleaned = speakable(segment.text)
    offsets = tuple(segment.char_start + offset for offset in cleaned.offsets)
    return Said(cleaned.spoken, offsets, ())


def _word_starts(segment: Segment, spoken: Said) -> list[int]:
    """Where the words of a segment begin in what it says, without white space at its start.

    A word of the client's text may say several, so equal texts may have their words elsewhere.
    """
    lead = len(spoken.text) - len(spoken.text.lstrip())
    starts = (bisect_left(spoken.offsets, word.char_start) for word in words_of(segment))
    return [max(0, start - lead) for start in starts]


def keys_of(
    all_params: Iterable[SynthesisParams], variant: SegmentVariant, segment: Segment
) -> Iterator[PhraseKey]:
    """Yield the key of a segment for each of `all_params`; none if there is nothing to speak."""
    spoken = _said_of(segment)
    text = spoken.text.strip()
    if not text:
        return
    ipa = [[reach.start, reach.stop, sounds] for reach, sounds in spoken.ipa]
    own = [text, ipa, _word_starts(segment, spoken)]
    for params in all_params:
        parts = [_FORMAT, __version__, asdict(params), asdict(variant), *own]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        yield PhraseKey(digest, text, params.voice.owner)
