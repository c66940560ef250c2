"""The cache of one server: what it stores, counts and drops, bounded in bytes, by use and age."""

from pathlib import Path

import pytest

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.core import AudioChunk, Segment, WordTimestamp
from voiceagent_tts.plugins.cache.phrases import (
    Phrase,
    PhraseKey,
    PhraseVoice,
    SynthesisParams,
    WordTime,
    words_of,
)
from voiceagent_tts.plugins.cache.store import (
    ContextPhrases,
    PhraseCache,
    PhraseMemory,
    Recorder,
    UseCounts,
)
from voiceagent_tts.plugins.clones.clone_files import delete_file, write_file

NOVA = PhraseVoice("nova")
KEY = PhraseKey("k", "One moment.")
WORDS = (WordTime(0, 1, 1.0), WordTime(1, 2, 1.0))


def phrase(voice: PhraseVoice = NOVA, words: tuple[WordTime, ...] | None = WORDS) -> Phrase:
    """Two words with a second of audio."""
    return Phrase(KEY.text, voice, bytes(48_000), words)


def test_a_phrase_without_the_words_that_are_needed_is_a_miss() -> None:
    """Files need no word times; a listener's context does."""
    cache = PhraseCache(1e6, 60, 1)
    cache.store(KEY, phrase(words=None))
    assert cache.find(KEY, needs_words=True) is None
    assert cache.find(KEY, needs_words=False) is not None
    cache.store(KEY, phrase())
    assert cache.find(KEY, needs_words=True) is not None


@pytest.mark.parametrize(("confidence", "stored"), [(0.0, 0), (0.3, 1), (1.0, 1)])
def test_a_word_that_no_aligner_has_found_is_not_stored(confidence: float, stored: int) -> None:
    """For as long as it was kept, each phrase would have its word at the end of the audio."""
    segment = Segment(KEY.text, 0)
    params = SynthesisParams("e", "m", "1", NOVA, None, 1.0, None, None)
    phrases = ContextPhrases(
        PhraseCache(1e6, 60, 1), params, needs_words=True, lacks_lead=False, has_pauses=False
    )
    recorder = Recorder(phrases)
    recorder.expect(segment, phrases.find(segment, "en"))
    recorder.push_audio(AudioChunk(0, bytes(48_000)))
    recorder.end_segment(segment.char_end)
    one, moment = words_of(segment)
    times = WordTimestamp(one, 0, 9_000, 1.0), WordTimestamp(moment, 24_000, 24_000, confidence)
    recorder.store_known(lambda *_: times, is_final=True)
    assert (phrases.stored, recorder.complete) == (stored, [])


async def test_the_phrases_of_a_voice_that_is_replaced_or_removed_are_dropped(
    tmp_path: Path,
) -> None:
    """Also those that a context wants to store afterwards; other voices keep theirs."""
    folder = VoiceFolder(tmp_path)
    write_file(folder.file("ann"), b"1")
    write_file(folder.file("bob"), b"1")
    cache = PhraseCache(1e6, 60, 1, folder=folder)
    ann, bob = [await cache.voices.load(name) for name in ("ann", "bob")]
    assert ann.content == bob.content != ""
    keys = {voice: PhraseKey(voice.name, "") for voice in (ann, bob)}
    for voice, key in keys.items():
        assert cache.store(key, phrase(voice))
    await cache.refresh()
    assert len(cache.memory) == 2
    write_file(folder.file("ann"), b"2")
    assert not cache.store(keys[ann], phrase(ann))
    assert await cache.voices.load("ann") != ann
    await cache.refresh()
    assert cache.memory.digests() == ["bob"]
    delete_file(folder.file("bob"))
    await cache.refresh()
    assert cache.memory.digests() == []
    assert not cache.store(keys[bob], phrase(bob))


PHRASE_BYTES = Phrase("", PhraseVoice("v"), bytes(1000), ()).size_bytes


class Clock:
    """Time that the test advances."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def sized(size: int = 1000, owner: str = "") -> Phrase:
    """A phrase of `PHRASE_BYTES` bytes."""
    return Phrase("", PhraseVoice("v", owner=owner), bytes(size), ())


def test_the_least_recently_used_phrase_makes_room() -> None:
    """The size never exceeds the maximum."""
    memory = PhraseMemory(3 * PHRASE_BYTES, Clock())
    for name in "abc":
        assert memory.put(name, sized(), 60)
    assert memory.get("a") is not None
    memory.put("d", sized(), 60)
    assert [name for name in "abcd" if name in memory] == ["a", "c", "d"]
    assert (memory.size_bytes, memory.evicted) == (3 * PHRASE_BYTES, 1)


def test_the_owner_with_the_most_uses_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that asks for thousands of phrases once does not keep others' from being stored."""
    monkeypatch.setattr("voiceagent_tts.plugins.cache.store._MOST_COUNTED", 4)
    uses, greeting = UseCounts(), PhraseKey("greeting", "Hello.", "victim")
    uses.add(greeting)
    for number in range(50):
        uses.add(PhraseKey(str(number), "", "attacker"))
    uses.add(greeting)
    assert uses.of(greeting) == 2
    counted = [number for number in range(50) if uses.of(PhraseKey(str(number), "", "attacker"))]
    assert counted == [47, 48, 49]


def test_the_owner_with_the_most_bytes_makes_room() -> None:
    """One key evicted the phrases of all others with one long text."""
    memory = PhraseMemory(6 * PHRASE_BYTES, Clock())
    for name, owner in (("shared", ""), ("victim 1", "victim"), ("victim 2", "victim")):
        memory.put(name, sized(owner=owner), 60)
    for number in range(50):
        memory.put(str(number), sized(owner="attacker"), 60)
    assert memory.digests() == ["shared", "victim 1", "victim 2", "47", "48", "49"]
    memory.put("shared 2", sized(), 60)
    assert memory.digests() == ["shared", "victim 1", "victim 2", "48", "49", "shared 2"]
    assert memory.size_bytes == 6 * PHRASE_BYTES and memory.evicted == 48


def test_a_phrase_that_is_too_large_pushes_nothing_out() -> None:
    """It is left out itself."""
    memory = PhraseMemory(3 * PHRASE_BYTES, Clock())
    memory.put("a", sized(), 60)
    assert not memory.put("b", sized(size=10_000), 60)
    assert memory.digests() == ["a"]


def test_a_phrase_is_dropped_when_its_time_is_over() -> None:
    """Its use does not prolong its time."""
    clock = Clock()
    memory = PhraseMemory(10 * PHRASE_BYTES, clock)
    memory.put("a", sized(), 60)
    memory.put("b", sized(), 90)
    clock.now = 59
    assert memory.get("a") is not None
    clock.now = 60
    assert memory.get("a") is None
    clock.now = 90
    memory.drop_expired()
    assert (len(memory), memory.size_bytes) == (0, 0)
