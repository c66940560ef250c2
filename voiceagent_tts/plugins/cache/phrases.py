"""Phrases: the audio of one segment, the key that finds it, and the cache as one context uses it.

Everything that shapes the sound of a segment is in its key, hashed. What the client's audio format,
the pacing and the transport do to the audio comes after the cache and is in no key.

An engine's segment is stored when all of its audio has arrived and the times of all of its words
are known. What may sound different the next time is not stored: a segment without a clear end, and
all segments of a context that the engine has warned of.
"""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from voiceagent_tts import __version__
from voiceagent_tts.core import BYTES_PER_SAMPLE, AudioChunk, Segment, Word, WordTimestamp
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.seam.commands import Feeding, SpeechOptions
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.text.cleaning import speakable
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import split_words
from voiceagent_tts.voices import VoiceFolder

if TYPE_CHECKING:
    from voiceagent_tts.plugins.cache.store import PhraseCache

_FORMAT = 1
"""Version of keys and phrases; a change of it invalidates everything stored."""
_WORD_BYTES = 100
_OTHER_BYTES = 500
_MOST_COMPLETE = 16
"""Complete segments that wait for word times; an aligner may be late, or gone."""

KnownTimes = Callable[[int, int, bool], "tuple[WordTimestamp, ...] | None"]
"""Returns the times of the words between two characters, on the worker's clock; None while one is
missing. The last argument is whether no better times will come."""


# Phrases.


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


class VoiceContents:
    """Hashes the files of clones, each version once.

    Args:
        folder: the clones; None on a server without any.
    """

    def __init__(self, folder: VoiceFolder | None) -> None:
        self._folder = folder
        self._known: dict[str, tuple[object, str]] = {}
        """Version and hash of each clone's file."""

    async def load(self, name: str) -> Spoken:
        """Return the voice as it is stored now; its file is read in a thread if it is new."""
        if self._folder is None or name not in self._folder:
            self._known.pop(name, None)
            return Spoken(name)
        return await asyncio.to_thread(self._read, name)

    def known(self, name: str) -> Spoken:
        """Return the voice as it was when it was loaded."""
        _, content = self._known.get(name, (None, ""))
        return Spoken(name, content)

    def is_current(self, spoken: Spoken) -> bool:
        """Whether the voice has not been replaced or removed since it was loaded."""
        version, content = self._known.get(spoken.voice, (None, ""))
        return content == spoken.content and version == self._version(spoken.voice)

    def withdrawn(self, voices: Iterable[Spoken]) -> set[Spoken]:
        """Those that are not stored any more as they were. Reads files, so it runs in a thread."""
        clones = {spoken for spoken in voices if spoken.content}
        return {spoken for spoken in clones if self._read(spoken.voice).content != spoken.content}

    def _read(self, name: str) -> Spoken:
        version = self._version(name)
        if version is None or self._folder is None:
            self._known.pop(name, None)
            return Spoken(name)
        known = self._known.get(name)
        if known is None or known[0] != version:
            try:
                content = hashlib.sha256(self._folder.read(name)).hexdigest()
            except InvalidRequestError:  # removed at this moment
                return Spoken(name)
            self._known[name] = known = (version, content)
        return Spoken(name, known[1])

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


# Keys.


@dataclass(frozen=True, slots=True)
class Manner:
    """How a context is spoken: everything that shapes its sound, except its text.

    Attributes:
        engine: name of the engine.
        model: name of its model.
        revision: weights and numerics of the model.
        spoken: the voice.
        instruct: description of how to speak.
        speed: speed at which the engine speaks; 1.0 where the server stretches its audio instead.
        seed: the client's seed; None for a random one.
        feeding: how the text reaches the engine, where a seed makes that audible; else None.
    """

    engine: str
    model: str
    revision: str
    spoken: Spoken
    instruct: str | None
    speed: float
    seed: int | None
    feeding: Feeding | None


def manner_of(
    capabilities: Capabilities, spoken: Spoken, speech: SpeechOptions, feeding: Feeding
) -> Manner | None:
    """Return how a context is spoken; None if no other context may sound like it.

    A voice that is made from a description is another person for every random seed.
    """
    if capabilities.needs_instruct and speech.seed is None:
        return None
    return Manner(
        capabilities.engine,
        capabilities.model,
        capabilities.revision,
        spoken,
        speech.instruct,
        speech.speed if capabilities.has_native_speed else 1.0,
        speech.seed,
        None if speech.seed is None else feeding,
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment stands in its context, as far as that is heard.

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
    """A segment's key, and the text that it says."""

    digest: str
    text: str


def said_text(segment: Segment) -> str:
    """What a segment says, with its readings and without what is not spoken."""
    return _said_of(segment)[0]


def _said_of(segment: Segment) -> tuple[str, list[list[int | str]]]:
    """What a segment says, and the sounds that are given for parts of it."""
    if not segment.readings:
        return speakable(segment.text).spoken.strip(), []
    spoken = said(segment.text, segment.char_start, segment.readings)
    ipa = [[reach.start, reach.stop, sounds] for reach, sounds in spoken.ipa]
    return spoken.text.strip(), ipa


def key_of(manner: Manner, place: Place, segment: Segment) -> PhraseKey | None:
    """Return the key of a segment; None if there is nothing to speak."""
    return next(keys_of((manner,), place, segment), None)


def keys_of(manners: Iterable[Manner], place: Place, segment: Segment) -> Iterator[PhraseKey]:
    """Yield the key of a segment in each manner; none if there is nothing to speak."""
    text, ipa = _said_of(segment)
    if not text:
        return
    for manner in manners:
        parts = [_FORMAT, __version__, asdict(manner), asdict(place), text, ipa]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        yield PhraseKey(digest, text)


# The cache as one context uses it.


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer of the cache for one segment.

    Attributes:
        phrase: its audio; None if the engine must speak it.
        key: its key; None for a segment without anything to speak.
        is_wanted: whether the audio of the engine shall be stored.
    """

    phrase: Phrase | None
    key: PhraseKey | None = None
    is_wanted: bool = False


class ContextPhrases:
    """Finds and stores the segments of one context.

    Args:
        cache: the cache of the server.
        manner: how the context is spoken.
        needs_words: whether a phrase without word times is of no use.
        lacks_lead: whether the silence before the context's first sound is left out.
        has_pauses: whether the engine's audio of a segment depends on whether text follows.
        is_filling: whether every phrase is stored, however often it was used.

    Attributes:
        needs_words: as given.
        has_pauses: as given.
        has_sound: whether a sound of the context comes before what `find` is asked for next: one of
            a segment that it was asked for, or of live text, for which the caller sets this.
        cached: segments that came from the cache.
        stored: phrases that the context has stored.
    """

    def __init__(
        self,
        cache: "PhraseCache",
        manner: Manner,
        *,
        needs_words: bool,
        lacks_lead: bool,
        has_pauses: bool,
        is_filling: bool = False,
    ) -> None:
        self._cache = cache
        self._manner = manner
        self._manners = [manner]
        """How the phrases are spoken that the context may use: its owner's, and everyone's."""
        if manner.spoken.owner:
            everyones = replace(manner.spoken, owner="")
            self._manners.append(replace(manner, spoken=everyones))
        self.needs_words = needs_words
        self._lacks_lead = lacks_lead
        self.has_pauses = has_pauses
        self.has_sound = False
        self.cached = self.stored = 0
        self._is_filling = is_filling

    def find(self, segment: Segment, language: str | None, *, is_last: bool = False) -> Lookup:
        """Look up the next segment of the context.

        Args:
            segment: the segment.
            language: its language code; None if the engine chooses.
            is_last: whether no text of the context comes after it.
        """
        place = Place(
            language,
            lacks_lead=self._lacks_lead and not self.has_sound,
            lacks_pause=self.has_pauses and is_last,
        )
        words = len(words_of(segment))
        keys = list(keys_of(self._manners, place, segment))
        if not keys:
            return Lookup(self._nothing(segment))
        self.has_sound = True
        key = next((each for each in keys if self._has(each, words)), keys[0])
        phrase = self._cache.find(key, words, needs_words=self.needs_words)
        self.cached += phrase is not None
        return Lookup(phrase, key, self._is_filling or self._cache.admits(key))

    def _has(self, key: PhraseKey, words: int) -> bool:
        return self._cache.has(key, words, needs_words=self.needs_words)

    def begins(self, segment: Segment) -> bool:
        """Whether a text may become a phrase of this voice."""
        text = said_text(segment)
        return any(self._cache.memory.begins(text, each.spoken) for each in self._manners)

    def store(self, key: PhraseKey, pcm: bytes, words: tuple[WordTime, ...] | None) -> None:
        """Store the audio of a segment that `find` has not found."""
        phrase = Phrase(key.text, self._manner.spoken, pcm, words)
        self.stored += self._cache.store(key, phrase)

    def _nothing(self, segment: Segment) -> Phrase | None:
        """The audio of a segment without anything to speak, which no engine need see."""
        return None if words_of(segment) else Phrase("", self._manner.spoken, b"", ())


@dataclass(slots=True)
class _Recording:
    segment: Segment
    lookup: Lookup
    start_sample: int | None = None
    pcm: list[bytes] = field(default_factory=list[bytes])
    words: tuple[WordTimestamp, ...] = ()


class Recorder:
    """Records what the worker of one context speaks, on the worker's clock.

    Args:
        phrases: the cache, as the context uses it.

    Attributes:
        is_recording: whether a segment that shall be stored is being spoken, or will be soon.
        complete: segments with all of their audio, whose word times are not all known.
    """

    def __init__(self, phrases: ContextPhrases) -> None:
        self._phrases = phrases
        self._is_trusted = True
        self.is_recording = False
        self._speaking: deque[_Recording] = deque()
        self.complete: list[_Recording] = []

    def expect(self, segment: Segment, lookup: Lookup) -> None:
        """Add a segment that the engine will speak after those before."""
        self._speaking.append(_Recording(segment, lookup))
        self.is_recording = self._is_trusted and (self.is_recording or lookup.is_wanted)

    def push_words(self, words: tuple[WordTimestamp, ...]) -> None:
        """Record the next words of an engine that reports them."""
        if self._speaking:
            self._speaking[0].words += words

    def push_audio(self, chunk: AudioChunk) -> None:
        """Record the next audio of the engine."""
        if not self._speaking:
            return
        recording = self._speaking[0]
        if recording.start_sample is None:
            recording.start_sample = chunk.start_sample
        if recording.lookup.is_wanted:
            recording.pcm.append(chunk.pcm)

    def end_segment(self, char_end: int) -> None:
        """Record that the text before `char_end` is spoken."""
        while self._speaking and self._speaking[0].segment.char_end <= char_end:
            recording = self._speaking.popleft()
            if recording.pcm and recording.segment.char_end == char_end:
                self.complete.append(recording)
        self.is_recording = self.is_recording and any(
            each.lookup.is_wanted for each in self._speaking
        )

    def distrust(self) -> None:
        """Store nothing more of this context: it may sound different the next time."""
        self._is_trusted = self.is_recording = False
        for recording in self._speaking:
            recording.pcm.clear()

    def store_known(self, known_times: KnownTimes | None = None, *, is_final: bool = False) -> None:
        """Store the segments whose words have all been timed.

        Args:
            known_times: returns the times of words; None where the engine has reported them.
            is_final: whether no better times will come.
        """
        waiting = [each for each in self.complete if not self._store(each, known_times, is_final)]
        self.complete = waiting[-_MOST_COMPLETE:]

    def _store(self, recording: _Recording, known_times: KnownTimes | None, is_final: bool) -> bool:
        segment, start_sample = recording.segment, recording.start_sample
        key = recording.lookup.key
        assert key is not None and start_sample is not None
        words = None
        if self._phrases.needs_words:
            times: tuple[WordTimestamp, ...] | None = recording.words
            if known_times is not None:
                times = known_times(segment.char_start, segment.char_end, is_final)
            if times is None:
                return False
            # An engine may report other words than the text has.
            if [word.char_start for word in words_of(segment)] != [
                each.word.char_start for each in times
            ]:
                return True
            words = word_times(times, start_sample)
        self._phrases.store(key, b"".join(recording.pcm), words)
        return True
