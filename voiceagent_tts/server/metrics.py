"""The metrics of `/metrics`: counts and seconds, never words, keys or ids of contexts.

The metrics of workers are what their heartbeats report, as `tts_worker_<name>{worker=...}`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from voiceagent_tts.core import SAMPLE_RATE_HZ, DoneReason
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.engine_kind import engine_kinds
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.workers import Supervisor, WorkerClient

_WORKER_METRICS = {
    "busy_seconds_total": "Time spent in steps.",
    "audio_seconds_total": "Audio synthesized, health probes included.",
    "realtime_factor": "Compute seconds per second of audio, between the last two heartbeats.",
}
"""The metrics of every worker. `/metrics` also names those of engines that this server does not
run, so that a dashboard can be checked against any server."""

_UNKNOWN = "Reported by the worker."


class WorkerMetrics(Collector):
    """Collects the last heartbeat of each worker."""

    def __init__(self, supervisors: Mapping[str, Supervisor]) -> None:
        self._supervisors = supervisors

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Return all families, with a sample for each worker that reports one."""
        known = dict(_WORKER_METRICS)
        for kind in engine_kinds().values():
            known |= kind.metrics
        families = {name: _family(name, text) for name, text in known.items()}
        for name, supervisor in self._supervisors.items():
            if supervisor.worker is not None:
                for metric, value in _values(supervisor.worker).items():
                    families.setdefault(metric, _family(metric, _UNKNOWN)).add_metric([name], value)
        return families.values()


def _values(worker: WorkerClient) -> dict[str, float]:
    stats = worker.stats
    values = {
        "busy_seconds_total": stats.busy_s,
        "audio_seconds_total": stats.audio_samples / SAMPLE_RATE_HZ,
        **stats.metrics,
    }
    if worker.realtime_factor is not None:
        values["realtime_factor"] = worker.realtime_factor
    return values


def _family(metric: str, help_text: str) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.endswith("_total") else GaugeMetricFamily
    return kind(f"tts_worker_{metric}", help_text, labels=["worker"])


_TTFA_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2, 5)
_LAG_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_UNDERRUN_BUCKETS_S = (0, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5)
_REACTION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5)
_LAG_INTERVAL_S = 0.1
_KEPT_S = 60.0  # time for which stalls are kept: no percentile shows one of 600


class LoopLag:
    """Measures the longest stall of the event loop in each tenth of a second.

    A stall is an iteration of the loop, or how late a timer was: other threads, or other programs,
    may have had the processor. To measure an iteration takes two looks at the clock.
    """

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._stalls = deque[tuple[float, float]]()  # when each was noted, and its length
        self._iteration_s = 0.0

    @property
    def longest_s(self) -> float:
        """The longest stall of the last minute."""
        return max((stall_s for _, stall_s in self._stalls), default=0.0)

    async def watch(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        # asyncio has no public hook; of a loop without a selector the timer is measured alone.
        selector: Any = getattr(loop, "_selector", SimpleNamespace(select=None))
        select, timed = selector.select, self._timed(selector.select, loop.time)
        selector.select = timed
        try:
            while True:
                due = loop.time() + _LAG_INTERVAL_S
                await asyncio.sleep(_LAG_INTERVAL_S)
                stall_s = max((now := loop.time()) - due, self._iteration_s)
                self._iteration_s = 0.0
                self._observe(stall_s)
                self._stalls.append((now, stall_s))
                while self._stalls[0][0] < now - _KEPT_S:
                    self._stalls.popleft()
        finally:
            if selector.select is timed:  # else a server that began later measures through it
                selector.select = select

    def _timed(self, select: Callable[..., Any], clock: Callable[[], float]) -> Callable[..., Any]:
        """Return a `select` that measures the iterations of its loop: the times between calls."""
        began = clock()

        def timed(timeout: float | None) -> Any:
            nonlocal began
            self._iteration_s = max(self._iteration_s, clock() - began)
            ready = select(timeout)
            began = clock()
            return ready

        return timed


class Metrics:
    """Prometheus metrics of one server, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._counter = partial(Counter, registry=self.registry)
        self._gauge = partial(Gauge, registry=self.registry)
        self._histogram = partial(Histogram, registry=self.registry)
        self._add_contexts()
        self._add_listening()
        self._add_connections()
        self._add_reactions()
        self._add_words()
        # From the start, because Prometheus sees no increase where a count appears with its first
        # event: every end of a context, and every refusal that is not the client's mistake.
        for reason in get_args(DoneReason):
            self._contexts.labels(reason)
        for code in ErrorCode:
            if code.status >= 500:
                self.refused.labels(code)

    def _add_contexts(self) -> None:
        counter = self._counter
        self._contexts = counter("tts_contexts", "Contexts that have ended.", ["reason"])
        self.refused = counter("tts_contexts_refused", "Contexts that were not opened.", ["code"])
        self._chars = counter("tts_chars", "Characters received.")
        self._audio = counter("tts_audio_seconds", "Audio of contexts, also from the cache.")
        self._discarded = counter(
            "tts_audio_discarded_seconds",
            "Audio generated but not played, because of a cancel.",
        )

    def _add_listening(self) -> None:
        """Add the metrics of what a listener notices: the wait for audio, and gaps in it."""
        self._ttfa = self._histogram(
            "tts_time_to_first_audio_seconds",
            "Time from the first text received to the first audio sent.",
            buckets=_TTFA_BUCKETS_S,
        )
        self._stages = self._histogram(
            "tts_stage_seconds",
            "Length of the stages from the first text received to the first audio sent.",
            ["stage"],
            buckets=_TTFA_BUCKETS_S,
        )
        self._underrun = self._histogram(
            "tts_audio_underrun_seconds",
            "Silence within one context because audio arrived late at the listener.",
            buckets=_UNDERRUN_BUCKETS_S,
        )
        self.frame_gap = self._histogram(
            "tts_inter_frame_gap_seconds",
            "Time between two consecutive audio messages of a context on a WebSocket.",
            buckets=_REACTION_BUCKETS_S,
        )

    def _add_connections(self) -> None:
        counter, gauge = self._counter, self._gauge
        self.errors = counter("tts_errors", "Errors sent to clients.", ["code"])
        self.sockets = counter("tts_ws_accepted", "WebSockets accepted since the start.")
        self.sockets_open = gauge("tts_ws_connections", "Open WebSockets.")
        self.send_queue = gauge(
            "tts_ws_send_queue_bytes", "Bytes that wait in this process for clients to read them."
        )
        self.is_ready = gauge("tts_ready", "1 while new contexts can be opened.")
        self.slow_consumers = counter(
            "tts_slow_consumer_closes", "Sockets closed because the client did not read."
        )
        self.requests = counter(
            "tts_http_requests",
            "HTTP requests answered, and WebSocket handshakes refused.",
            ["route", "status"],
        )
        self.jobs = counter("tts_jobs", "Jobs that have ended here.", ["status"])
        self.keys = gauge("tts_keys", "API keys that are accepted.")
        self.keys_stale = gauge("tts_keys_stale", "1 while the keys cannot be read again.")
        self.limits_shared = gauge("tts_limits_shared", "1 while limits are counted in Redis.")

    def _add_reactions(self) -> None:
        reactions = partial(self._histogram, buckets=_REACTION_BUCKETS_S)
        self.admission_wait = reactions(
            "tts_admission_wait_seconds",
            "Time from the request for a context to its row, or to its refusal.",
        )
        self.contexts_waiting = self._gauge(
            "tts_contexts_waiting", "Contexts that wait for admission."
        )
        self.cancel_latency = reactions(
            "tts_cancel_latency_seconds", "Time from a cancel received to its answer sent."
        )
        self.engine_abort = reactions(
            "tts_engine_abort_seconds", "Time from a cancel to the free row of the engine."
        )
        lag = reactions(
            "tts_event_loop_lag_seconds",
            "Longest stall of the event loop in each tenth of a second.",
        )
        self.loop_lag = loop_lag = LoopLag(lag.observe)
        self._gauge(
            "tts_event_loop_longest_stall_seconds",
            "Longest stall of the event loop in the last minute.",
        ).set_function(lambda: loop_lag.longest_s)

    def _add_words(self) -> None:
        counter = self._counter
        self._words = counter("tts_words", "Words sent, by the source of their times.", ["source"])
        self._late_words = counter(
            "tts_words_late", "Words sent after playback could have reached them."
        )
        self._doubtful_words = counter(
            "tts_words_doubtful", "Words whose times two aligners disagreed about."
        )
        self._word_lag = self._histogram(
            "tts_word_lag_seconds",
            "Longest time, per context, that a word's time was sent after the word was heard.",
            buckets=_UNDERRUN_BUCKETS_S,
        )
        self._aligner_lag = self._histogram(
            "tts_aligner_lag_seconds",
            "Longest time from audio to the answer of an aligner, per context.",
            ["aligner"],
            buckets=_LAG_BUCKETS_S,
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
        for stage, length_s in report.milestones.stages_s.items():
            self._stages.labels(stage).observe(length_s)
        self._observe_words(report)

    def _observe_words(self, report: ContextReport) -> None:
        for source, count in report.words.sources.items():
            self._words.labels(source.label).inc(count)
        self._late_words.inc(report.words.late)
        self._doubtful_words.inc(report.words.doubtful)
        if report.words.sources:
            self._word_lag.observe(report.word_lag_s)
        for source, lag_s in report.aligner_lag_s.items():
            self._aligner_lag.labels(source.label).observe(lag_s)

    def watch(self, synthesizer: Synthesizer) -> None:
        """Register the gauges of `synthesizer`, which are read when metrics are rendered."""
        gauge, workers, aligners = self._gauge, synthesizer.supervisors, synthesizer.aligners
        gauge("tts_contexts_active", "Open contexts.").set_function(
            lambda: synthesizer.contexts_active
        )
        gauge("tts_slots_used", "Rows of the engines in use.").set_function(
            lambda: synthesizer.rows_used
        )
        gauge("tts_slots", "Rows of the engines.").set_function(lambda: synthesizer.rows)
        gauge("tts_worker_restarts", "Workers that ended and were replaced.").set_function(
            lambda: sum(each.restarts for each in workers.values())
        )
        gauge("tts_aligner_restarts", "Aligners that ended and were replaced.").set_function(
            lambda: sum(each.restarts for each in aligners.values())
        )
        self.registry.register(WorkerMetrics({**synthesizer.workers, **aligners}))

    def render(self) -> bytes:
        """The metrics in the Prometheus text format."""
        return generate_latest(self.registry)
