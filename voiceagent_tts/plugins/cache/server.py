"""Adds the cache of phrases to a server."""

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.config import Settings
from voiceagent_tts.plugins.cache import routes
from voiceagent_tts.plugins.cache.metrics import CacheMetrics
from voiceagent_tts.plugins.cache.proxy import CachingProxy
from voiceagent_tts.plugins.cache.shared import SharedPhrases
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.plugins.redis.connection import connect
from voiceagent_tts.server.state import ServerHooks

_PHRASE_S = 86_400.0
"""Time after which a cached phrase is spoken anew."""


def add_to_server(hooks: ServerHooks) -> None:
    """Add the routes, and put the cache between contexts and engines, unless it is off.

    Raises:
        InvalidRequestError: the address of Redis cannot be used.
    """
    state = hooks.state
    cache = _cache_of(state.settings, state.clones)
    hooks.app.state.cache = cache
    hooks.app.include_router(routes.router)
    if cache is not None:
        proxy = CachingProxy(cache)
        state.synthesizer.before_open.append(proxy.load)
        state.synthesizer.proxy = proxy.connect
        state.metrics.registry.register(CacheMetrics(cache))
        state.on_start.append(cache.start)
        state.on_withdrawal.append(cache.refresh)  # it drops the audio of voices that are gone
        state.on_close.append(cache.close)


def _cache_of(settings: Settings, clones: VoiceFolder) -> PhraseCache | None:
    """The cache that the settings ask for."""
    if not settings.cache_mb:
        return None
    shared = None
    if settings.cache_redis_mb and settings.redis:
        shared = SharedPhrases(connect(settings.redis), settings.cache_redis_mb * 1e6)
    return PhraseCache(
        settings.cache_mb * 1e6, _PHRASE_S, settings.cache_after, folder=clones, shared=shared
    )
