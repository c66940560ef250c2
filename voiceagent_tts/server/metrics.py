"""What `/metrics` shows: counts and seconds, never words, keys or names of contexts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.synthesizer import ContextReport, Synthesizer

_TTFA_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2, 5)
_UNDERRUN_BUCKETS_S = (0, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5)


class Metrics:
    """The server's Prometheus metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._contexts = Counter(
            "tts_contexts", "Contexts that have ended.", ["reason"], registry=self.registry
        )
        self.errors = Counter(
            "tts_errors", "Errors answered to clients.", ["code"], registry=self.registry
        )
        self.sockets = Counter(
            "tts_ws_accepted", "WebSockets accepted since the start.", registry=self.registry
        )
        self.sockets_open = Gauge(
            "tts_ws_connections", "WebSockets open now.", registry=self.registry
        )
        self.slow_consumers = Counter(
            "tts_slow_consumer_closes",
            "Sockets closed because nobody read them.",
            registry=self.registry,
        )
        self._chars = Counter("tts_chars", "Characters received.", registry=self.registry)
        self._audio = Counter(
            "tts_audio_seconds", "Audio made by the engines.", registry=self.registry
        )
        self._discarded = Counter(
            "tts_audio_discarded_seconds",
            "Audio made and, because of a cancel, heard by nobody.",
            registry=self.registry,
        )
        self._ttfa = Histogram(
            "tts_time_to_first_audio_seconds",
            "First text received to first audio sent.",
            buckets=_TTFA_BUCKETS_S,
            registry=self.registry,
        )
        self._underrun = Histogram(
            "tts_audio_underrun_seconds",
            "Silence between the audio of one context, as a listener hears it.",
            buckets=_UNDERRUN_BUCKETS_S,
            registry=self.registry,
        )

    def observe(self, report: ContextReport) -> None:
        """Count a context that has ended."""
        self._contexts.labels(report.reason).inc()
        self._chars.inc(report.chars)
        self._audio.inc(report.audio_samples / SAMPLE_RATE_HZ)
        self._discarded.inc(report.discarded_samples / SAMPLE_RATE_HZ)
        self._underrun.observe(report.underrun_s)
        if report.ttfa_s is not None:
            self._ttfa.observe(report.ttfa_s)

    def watch(self, synthesizer: Synthesizer) -> None:
        """Read the gauges of `synthesizer` whenever metrics are asked for."""

        def gauge(name: str, help_text: str) -> Gauge:
            return Gauge(name, help_text, registry=self.registry)

        workers = list(synthesizer.supervisors.values())
        gauge("tts_contexts_active", "Contexts open now.").set_function(
            lambda: synthesizer.contexts_active
        )
        gauge("tts_slots_used", "Rows of the engines in use.").set_function(
            lambda: sum(s.worker.rows_used for s in workers if s.worker is not None)
        )
        gauge("tts_slots_total", "Rows that the engines have.").set_function(
            lambda: sum(s.capabilities.max_rows for s in workers if s.worker is not None)
        )
        gauge("tts_worker_restarts", "Workers that ended and were replaced.").set_function(
            lambda: sum(s.restarts for s in workers)
        )

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)
