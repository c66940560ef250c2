"""The cache of a server: finds phrases, decides which are stored, and refreshes them.

`PhraseMemory` has the phrases of this server, bounded in bytes and in time.
`VoiceContents` hashes cloned voices, since phrases belong to contents and not to names.

A phrase is stored when it was spoken before: sentences that a language model writes once would
otherwise evict the greetings that every caller hears, and never be used again.

`ContextPhrases` and `Recorder` are the cache as one context uses it. An engine's segment is stored
when all of its audio has arrived and the times of all of its words are known. What may sound
different the next time is not stored: a segment without a clear end, and all segments of a context
that the engine has warned of.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, Segment, WordTimestamp
from voiceagent_tts.plugins.cache.phrases import (
    Phrase,
    PhraseKey,
    PhraseVoice,
    SegmentVariant,
    SynthesisParams,
    VoiceContents,
    WordTime,
    keys_of,
    said_text,
    word_times,
    words_of,
)
from voiceagent_tts.plugins.cache.shared import SharedPhrase, SharedPhrases
from voiceagent_tts.plugins.redis.connection import away_errors
from voiceagent_tts.seam.commands import Feeding, SpeechOptions
from voiceagent_tts.seam.events import Capabilities

_MOST_COMPLETE = 16
"""Complete segments that wait for word times; an aligner may be late, or gone."""
_REFRESH_S = 1.0
"""Time between two rounds of `refresh`; docs/cache.md promises two seconds."""
_MOST_COUNTED = 20_000
"""Keys whose uses are counted: some 4 MB."""

KnownTimes = Callable[[int, int, bool], tuple[WordTimestamp, ...] | None]
"""Returns the times of the words between two characters, on the worker's clock; None while one is
missing. The last argument is whether no better times will come."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class CacheCounts:
    """Totals since the start of the server.

    Attributes:
        hits: segments that were in the cache.
        misses: segments that an engine had to speak.
        stored: phrases that were stored here, without those of other servers.
        samples: audio from the cache.
    """

    hits: int = 0
    misses: int = 0
    stored: int = 0
    samples: int = 0

    @property
    def audio_s(self) -> float:
        """Seconds of audio from the cache."""
        return self.samples / SAMPLE_RATE_HZ

    @property
    def hit_rate(self) -> float | None:
        """Share of the segments that were in the cache; None without any segment."""
        total = self.hits + self.misses
        return self.hits / total if total else None


class PhraseCache:
    """The phrases of one server, and those that it shares.

    Args:
        after: a phrase is stored when it is spoken for this time.
        shared: phrases in Redis; None keeps them in this server's memory alone.
    """

    def __init__(
        self,
        max_bytes: float,
        ttl_s: float,
        after: int,
        *,
        folder: VoiceFolder | None = None,
        shared: SharedPhrases | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = CacheCounts()
        self.memory = PhraseMemory(max_bytes, clock)
        self.voices = VoiceContents(folder)
        self._ttl_s = ttl_s
        self._after = after
        self._shared = shared
        self._clones: set[PhraseVoice] = set()
        """Clones with phrases in memory or in Redis, as far as this server knows."""
        self._uses = UseCounts()
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def is_shared(self) -> bool:
        """Whether Redis takes part now."""
        return self._shared is not None and self._shared.is_reachable

    @property
    def is_redis_full(self) -> bool:
        """Whether Redis has no memory for the phrases of this server."""
        return self._shared is not None and self._shared.is_full

    def find(self, key: PhraseKey, *, needs_words: bool) -> Phrase | None:
        """Return a phrase, and count the use of its key."""
        phrase = self.memory.get(key.digest)
        self._uses.add(key)
        if phrase is None or not _fits(phrase, needs_words=needs_words):
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        self.counts.samples += phrase.samples
        return phrase

    def has(self, key: PhraseKey, *, needs_words: bool) -> bool:
        """Whether `find` would return a phrase; counts nothing."""
        phrase = self.memory.get(key.digest)
        return phrase is not None and _fits(phrase, needs_words=needs_words)

    def admits(self, key: PhraseKey) -> bool:
        """Whether the phrase, which `find` has not found, was used often enough to be stored."""
        return self._uses.of(key) >= self._after

    def store(self, key: PhraseKey, phrase: Phrase) -> bool:
        """Store a phrase that fits, unless its voice was replaced or withdrawn since it was spoken.

        Returns:
            Whether it was stored.
        """
        if not self.voices.is_current(phrase.voice):
            return False
        self._note_clone(phrase.voice)
        if not self.memory.put(key.digest, phrase, self._ttl_s):
            return False
        self.counts.stored += 1
        if self._shared is not None:
            self._shared.share(SharedPhrase(key.digest, phrase, self._ttl_s))
        return True

    # In the background.

    async def start(self) -> None:
        """Refresh the cache in the background until `close`."""
        self._refreshing = asyncio.create_task(self._refresh_always())

    async def close(self) -> None:
        """End the background task and the connection; idempotent."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})
        if self._shared is not None:
            await self._shared.close()

    async def clear(self) -> bool:
        """Drop all phrases, on all servers that share them.

        Returns:
            False if only this server's memory is cleared: there is no Redis, or it is away.
        """
        self.memory.clear()
        if self._shared is None:
            return False
        try:
            await self._shared.clear()
        except away_errors():
            return False
        return True

    async def refresh(self) -> None:
        """Drop what is too old or of a withdrawn voice; exchange phrases with other servers."""
        self.memory.drop_expired()
        await self._drop_withdrawn()
        if self._shared is None:
            return
        news = await self._shared.exchange(self.memory.digests())
        if news.is_cleared:
            self.memory.clear()
        for each in news.phrases:
            self._note_clone(each.phrase.voice)
            self.memory.put(each.digest, each.phrase, each.ttl_s)

    def _note_clone(self, voice: PhraseVoice) -> None:
        if voice.content:
            self._clones.add(voice)

    async def _drop_withdrawn(self) -> None:
        if not self._clones:
            return
        withdrawn = await asyncio.to_thread(self.voices.withdrawn, set(self._clones))
        if not withdrawn:
            return
        phrases = self.memory.drop_voices(withdrawn)
        _log.info("cache_voices_dropped", voices=len(withdrawn), phrases=phrases)
        if self._shared is not None:
            try:
                await self._shared.drop_voices(withdrawn)
            except away_errors():
                return  # tried again with the next round
        self._clones -= withdrawn

    async def _refresh_always(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception as error:  # a bug, or a folder that cannot be read now
                _log.error("cache_not_tended", error=type(error).__name__)
            await asyncio.sleep(_REFRESH_S)


def _fits(phrase: Phrase, *, needs_words: bool) -> bool:
    return phrase.words is not None or not needs_words


class UseCounts:
    """How often each phrase was asked for; the owner with the most makes room for new ones."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, int]] = {}
        """Uses by owner and digest; the most recent one last."""
        self._number = 0

    def of(self, key: PhraseKey) -> int:
        """How often a phrase was asked for, as far as this is remembered."""
        return self._of.get(key.owner, {}).get(key.digest, 0)

    def add(self, key: PhraseKey) -> None:
        """Count a use."""
        counts = self._of.setdefault(key.owner, {})
        earlier = counts.pop(key.digest, 0)
        counts[key.digest] = earlier + 1
        self._number += not earlier
        if self._number > _MOST_COUNTED:
            largest = max(self._of.values(), key=len)
            del largest[next(iter(largest))]
            self._number -= 1


@dataclass(frozen=True, slots=True)
class _Entry:
    phrase: Phrase
    expires_at: float


class PhraseMemory:
    """Keeps the most recently used phrases; the owner with the most bytes makes room for new ones.

    Attributes:
        evicted: phrases that were dropped for lack of room.
    """

    def __init__(self, max_bytes: float, clock: Callable[[], float]) -> None:
        self.size_bytes = 0
        self.evicted = 0
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._recent: dict[str, OrderedDict[str, None]] = {}
        """The keys of each owner's phrases; the most recently used one last."""
        self._bytes: Counter[str] = Counter()
        """Of each owner's phrases."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, digest: str) -> bool:
        return digest in self._entries

    def get(self, digest: str) -> Phrase | None:
        """Return a phrase and mark it as used; None without one that is young enough."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if entry.expires_at <= self._clock():
            self.drop(digest)
            return None
        self._recent[entry.phrase.voice.owner].move_to_end(digest)
        return entry.phrase

    def begins(self, text: str, voice: PhraseVoice) -> bool:
        """Whether a phrase of a voice begins with a text, or is that text."""
        phrases = (entry.phrase for entry in self._entries.values())
        return any(each.voice == voice and each.text.startswith(text) for each in phrases)

    def put(self, digest: str, phrase: Phrase, ttl_s: float) -> bool:
        """Keep a phrase for `ttl_s`; return whether it fits at all."""
        self.drop(digest)
        if phrase.size_bytes > self._max_bytes:
            return False
        self._entries[digest] = _Entry(phrase, self._clock() + ttl_s)
        self._recent.setdefault(phrase.voice.owner, OrderedDict())[digest] = None
        self._count_bytes(phrase, phrase.size_bytes)
        while self.size_bytes > self._max_bytes:
            largest = max(self._bytes, key=self._bytes.__getitem__)
            self.drop(next(iter(self._recent[largest])))
            self.evicted += 1
        return True

    def drop(self, digest: str) -> None:
        """Forget a phrase; idempotent."""
        entry = self._entries.pop(digest, None)
        if entry is None:
            return
        phrase, owner = entry.phrase, entry.phrase.voice.owner
        self._count_bytes(phrase, -phrase.size_bytes)
        del self._recent[owner][digest]
        if not self._recent[owner]:
            del self._recent[owner], self._bytes[owner]

    def _count_bytes(self, phrase: Phrase, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._bytes[phrase.voice.owner] += size_bytes

    def drop_expired(self) -> None:
        """Forget the phrases that are too old."""
        now = self._clock()
        self._drop_where(lambda entry: entry.expires_at <= now)

    def drop_voices(self, withdrawn: set[PhraseVoice]) -> int:
        """Forget all phrases of some voices; return their number."""
        return self._drop_where(lambda entry: entry.phrase.voice in withdrawn)

    def clear(self) -> None:
        """Forget all phrases."""
        self._drop_where(lambda entry: True)

    def digests(self) -> list[str]:
        """The keys of the phrases."""
        return list(self._entries)

    def _drop_where(self, is_dropped: Callable[[_Entry], bool]) -> int:
        digests = [digest for digest, each in self._entries.items() if is_dropped(each)]
        for digest in digests:
            self.drop(digest)
        return len(digests)


# The cache as one context uses it.


def params_of(
    capabilities: Capabilities, voice: PhraseVoice, speech: SpeechOptions, feeding: Feeding
) -> SynthesisParams | None:
    """Return what shapes the sound of a context; None if no other context may sound like it.

    A voice that is made from a description sounds different with every random seed.
    """
    if capabilities.needs_instruct and speech.seed is None:
        return None
    return SynthesisParams(
        capabilities.engine,
        capabilities.model,
        capabilities.revision,
        voice,
        speech.instruct,
        speech.speed if capabilities.has_native_speed else 1.0,
        speech.seed,
        None if speech.seed is None else feeding,
    )


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer of the cache for one segment.

    Attributes:
        is_wanted: whether the audio of the engine shall be stored.
    """

    phrase: Phrase | None
    key: PhraseKey | None = None
    is_wanted: bool = False


class ContextPhrases:
    """Finds and stores the segments of one context.

    Args:
        needs_words: whether a phrase without word times is of no use.
        lacks_lead: whether the silence before the context's first sound is left out.
        has_pauses: whether the engine's audio of a segment depends on whether text follows.
        is_filling: whether every phrase is stored, however often it was used.

    Attributes:
        has_sound: whether the context has sound before the next segment. `find` sets it; for text
            that is spoken without a `find`, the caller does.
        cached: segments that came from the cache.
        stored: phrases that the context has stored.
    """

    def __init__(
        self,
        cache: PhraseCache,
        params: SynthesisParams,
        *,
        needs_words: bool,
        lacks_lead: bool,
        has_pauses: bool,
        is_filling: bool = False,
    ) -> None:
        self._cache = cache
        self._params = params
        self._all_params = [params]
        """Parameters of the phrases that the context may use: its owner's, and the shared ones."""
        if params.voice.owner:
            shared_voice = replace(params.voice, owner="")
            self._all_params.append(replace(params, voice=shared_voice))
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
        variant = SegmentVariant(
            language,
            lacks_lead=self._lacks_lead and not self.has_sound,
            lacks_pause=self.has_pauses and is_last,
        )
        keys = list(keys_of(self._all_params, variant, segment))
        if not keys:
            return Lookup(self._nothing(segment))
        self.has_sound = True
        key = next((each for each in keys if self._has(each)), keys[0])
        phrase = self._cache.find(key, needs_words=self.needs_words)
        self.cached += phrase is not None
        return Lookup(phrase, key, self._is_filling or self._cache.admits(key))

    def _has(self, key: PhraseKey) -> bool:
        return self._cache.has(key, needs_words=self.needs_words)

    def begins(self, segment: Segment) -> bool:
        """Whether a text may become a phrase of this voice."""
        text = said_text(segment)
        return any(self._cache.memory.begins(text, each.voice) for each in self._all_params)

    def store(self, key: PhraseKey, pcm: bytes, words: tuple[WordTime, ...] | None) -> None:
        """Store the audio of a segment that `find` has not found."""
        phrase = Phrase(key.text, self._params.voice, pcm, words)
        self.stored += self._cache.store(key, phrase)

    def _nothing(self, segment: Segment) -> Phrase | None:
        """The empty phrase of a segment without anything to speak, which needs no engine."""
        return None if words_of(segment) else Phrase("", self._params.voice, b"", ())


@dataclass(slots=True)
class _Recording:
    segment: Segment
    lookup: Lookup
    start_sample: int | None = None
    pcm: list[bytes] = field(default_factory=list[bytes])
    words: tuple[WordTimestamp, ...] = ()


class Recorder:
    """Records what the worker of one context speaks, on the worker's clock.

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
        """Store no more segments of this context: they may sound different the next time."""
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
            if not all(each.confidence for each in times):  # no aligner has found one of them
                return True
            words = word_times(times, start_sample)
        self._phrases.store(key, b"".join(recording.pcm), words)
        return True
