"""The metrics of the cache: `tts_cache_*`, from its totals."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from voiceagent_tts.plugins.cache.store import PhraseCache


class CacheMetrics(Collector):
    """Collects the metrics when they are rendered."""

    def __init__(self, cache: PhraseCache) -> None:
        self._cache = cache

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """The totals, as Prometheus names them."""
        counts, memory = self._cache.counts, self._cache.memory
        segments = CounterMetricFamily(
            "tts_cache_segments", "Segments looked up in the cache.", labels=["result"]
        )
        segments.add_metric(["hit"], counts.hits)
        segments.add_metric(["miss"], counts.misses)
        yield segments
        for name, help_text, value in (
            ("tts_cache_audio_seconds", "Audio that came from the cache.", counts.audio_s),
            ("tts_cache_stored", "Phrases stored by this server.", counts.stored),
            ("tts_cache_evicted", "Phrases dropped for lack of room.", memory.evicted),
        ):
            yield CounterMetricFamily(name, help_text, value)
        for name, help_text, value in (
            ("tts_cache_phrases", "Phrases in memory.", len(memory)),
            ("tts_cache_bytes", "Memory of the phrases.", memory.size_bytes),
            (
                "tts_cache_redis_full",
                "1 while Redis has no memory for phrases.",
                self._cache.is_redis_full,
            ),
            ("tts_cache_shared", "1 while phrases are shared in Redis.", self._cache.is_shared),
        ):
            yield GaugeMetricFamily(name, help_text, value)
