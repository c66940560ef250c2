"""What `/metrics` shows: counts and seconds, never words, keys or names of contexts."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.seam.events import Stats
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.synthesizer import Synthesizer

_TTFA_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2, 5)
_LAG_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
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
        self._words = Counter(
            "tts_words", "Words sent, by where their times come from.", ["source"],
            registry=self.registry,
        )  # fmt: skip
        self._late_words = Counter(
            "tts_words_late",
            "Words whose time was known only when it could have been heard.",
            registry=self.registry,
        )
        self._doubtful_words = Counter(
            "tts_words_doubtful",
            "Words about which two aligners disagreed.",
            registry=self.registry,
        )
        self._aligner_lag = Histogram(
            "tts_aligner_lag_seconds",
            "Longest time from sound to the answer of an aligner in one context.",
            ["aligner"],
            buckets=_LAG_BUCKETS_S,
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
        self._observe_words(report)

    def _observe_words(self, report: ContextReport) -> None:
        for source, count in report.words.sources.items():
            self._words.labels(source.label).inc(count)
        self._late_words.inc(report.words.late)
        self._doubtful_words.inc(report.words.doubtful)
        for source, lag_s in report.aligner_lag_s.items():
            self._aligner_lag.labels(source.label).observe(lag_s)

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
        gauge("tts_aligner_restarts", "Aligners that ended and were replaced.").set_function(
            lambda: sum(s.restarts for s in synthesizer.aligners.values())
        )
        workers_by_name = {**synthesizer.supervisors, **synthesizer.aligners}
        self.registry.register(_WorkerFigures(workers_by_name))

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)


class _WorkerFigures(Collector):
    """`tts_worker_<figure>{worker=...}`: what each worker's last heartbeat told of itself."""

    def __init__(self, supervisors: Mapping[str, Supervisor]) -> None:
        self._supervisors = supervisors

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, supervisor in self._supervisors.items():
            if supervisor.worker is not None:
                for figure, value in _figures(supervisor.worker.stats).items():
                    families.setdefault(figure, _family(figure)).add_metric([name], value)
        return families.values()


def _figures(stats: Stats) -> dict[str, float]:
    audio_s = stats.audio_samples / SAMPLE_RATE_HZ
    return {
        "busy_seconds_total": stats.busy_s,
        "audio_seconds_total": audio_s,
        **stats.figures,
    }


def _family(figure: str) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if figure.endswith("_total") else GaugeMetricFamily
    return kind(f"tts_worker_{figure}", "As the worker tells it.", labels=["worker"])
