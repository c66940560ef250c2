"""The least recently used cache."""

from voiceagent_tts.lru import LRUCache


def test_the_least_recently_used_value_is_dropped() -> None:
    """`get` marks a value as used; `peek` does not."""
    cache = LRUCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    assert cache.peek("b") == 2
    cache.put("c", 3)
    assert "b" not in cache
    assert cache.get("b") is None
    assert len(cache) == 2
    cache.drop_oldest()
    assert cache.peek("a") is None
    assert cache.peek("c") == 3
