"""The memory: bounded in bytes, by use and by age."""

from voiceagent_tts.plugins.cache.phrases import Phrase, PhraseVoice
from voiceagent_tts.plugins.cache.store import PhraseMemory

SIZE = Phrase("", PhraseVoice("v"), bytes(1000), ()).size_bytes


class Clock:
    """Time that the test advances."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def phrase(voice: str = "v", content: str = "", size: int = 1000) -> Phrase:
    """A phrase of `SIZE` bytes."""
    return Phrase("", PhraseVoice(voice, content), bytes(size), ())


def test_the_least_recently_used_phrase_makes_room() -> None:
    """The size never exceeds the maximum."""
    memory = PhraseMemory(3 * SIZE, Clock())
    for name in "abc":
        assert memory.put(name, phrase(), 60)
    assert memory.get("a") is not None
    memory.put("d", phrase(), 60)
    assert [name for name in "abcd" if name in memory] == ["a", "c", "d"]
    assert (memory.size_bytes, memory.evicted) == (3 * SIZE, 1)


def test_a_phrase_that_is_too_large_pushes_nothing_out() -> None:
    """It is left out itself."""
    memory = PhraseMemory(3 * SIZE, Clock())
    memory.put("a", phrase(), 60)
    assert not memory.put("b", phrase(size=10_000), 60)
    assert memory.digests() == ["a"]


def test_a_phrase_is_dropped_when_its_time_is_over() -> None:
    """Its use does not prolong its time."""
    clock = Clock()
    memory = PhraseMemory(10 * SIZE, clock)
    memory.put("a", phrase(), 60)
    memory.put("b", phrase(), 90)
    clock.now = 59
    assert memory.get("a") is not None
    clock.now = 60
    assert memory.get("a") is None
    clock.now = 90
    memory.drop_expired()
    assert (len(memory), memory.size_bytes) == (0, 0)


def test_a_new_phrase_replaces_the_old_one() -> None:
    """Its size counts once."""
    memory = PhraseMemory(10 * SIZE, Clock())
    for _ in range(2):
        memory.put("a", phrase(), 60)
    assert memory.size_bytes == SIZE
    memory.clear()
    assert memory.size_bytes == 0
