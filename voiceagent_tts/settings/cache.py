"""Phrases that are spoken again and again."""

from pydantic import Field

from voiceagent_tts.settings.group import Count, SettingsGroup


class CacheSettings(SettingsGroup):
    """Size and contents of the cache.

    Attributes:
        cache_mb: Memory for phrases that are spoken again and again, in units of 10^6 bytes (one
            minute of speech takes 2.9). 0 turns the cache off: every text is spoken by an engine.
        cache_after: A phrase is stored when it is spoken for this time. With 1, sentences that are
            spoken only once fill the memory too.
        cache_redis_mb: Size of the cached phrases in Redis, in units of 10^6 bytes, which all
            servers share. Needs `redis`. Default: each server has its own phrases only.
    """

    cache_mb: float = Field(default=128.0, ge=0, le=1e6)
    cache_after: Count = 2
    cache_redis_mb: float = Field(default=0.0, ge=0, le=1e6)
