"""The metrics of workers: what their heartbeats report, as `tts_worker_<name>{worker=...}`."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.synthesizer.workers import Supervisor, WorkerClient

WORKER_METRICS = {
    "upstream_requests_total": "Requests sent to the upstream.",
    "upstream_retries_total": "Requests repeated because they had failed before any audio.",
    "upstream_failures_total": "Texts that the upstream did not speak.",
    "upstream_chars_total": "Characters sent to the upstream.",
    "busy_seconds_total": "Time spent in steps.",
    "audio_seconds_total": "Audio synthesized, health probes included.",
    "realtime_factor": "Compute seconds per second of audio, between the last two heartbeats.",
    "gpu_memory_used_bytes": "Memory of the GPU in use, by all programs.",
    "gpu_memory_total_bytes": "Memory of the GPU.",
    "gpu_memory_reserved_bytes": "Memory of the GPU that PyTorch has reserved for this worker.",
    "gpu_utilization_ratio": "Share of the last moments in which the GPU ran a kernel.",
    "used_rows": "Rows in use.",
    "starved_rows": "Rows in use that wait for text.",
    "lowest_lead_seconds": "Shortest remaining audio of any listener.",
    "load_ratio": "Step time divided by frame time; above 1 the device is too slow.",
    "retry_after_seconds": "Retry delay that a refused context is given.",
    "starts_total": "Sequences started.",
    "underruns_total": "Gaps that listeners heard because frames were late.",
    "underrun_seconds_total": "Length of these gaps.",
    "discarded_seconds_total": "Audio synthesized and then dropped by a cancel.",
    "refused_total": "Contexts refused.",
    "lost_texts_total": "Contexts that failed because the model had lost the text.",
    "steps_total": "Steps that made frames.",
    "frames_total": "Frames made.",
    "prefill_seconds_total": "Device time in prefill.",
    "predictor_seconds_total": "Device time in the code predictor.",
    "talker_seconds_total": "Device time in the talker.",
    "codec_seconds_total": "Device time in the codec.",
    "host_seconds_total": "Step time in which the device was idle.",
    "free_pages": "Free pages of key-value memory.",
    "graph_memory_bytes": "Memory of captured CUDA graphs.",
    "has_graphs": "1 while captured CUDA graphs are replayed.",
    "has_fused_kernels": "1 while fused kernels run.",
    "has_fused_codec": "1 while the codec's fused kernels run.",
    "prefix_cache_hits_total": "Prompt prefixes found in the cache.",
    "prefix_cache_misses_total": "Prompt prefixes computed.",
    "clone_cache_hits_total": "Cloned voices found in the cache.",
    "clone_cache_misses_total": "Cloned voices loaded from disk.",
}
"""Every metric of a worker, with its help text. `/metrics` names all of them, also those that no
worker of this server reports, so that a dashboard can be checked against any server."""

_UNKNOWN = "Reported by the worker."


class WorkerMetrics(Collector):
    """Collects the last heartbeat of each worker.

    Args:
        supervisors: the workers by name.
    """

    def __init__(self, supervisors: Mapping[str, Supervisor]) -> None:
        self._supervisors = supervisors

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Return all families, with a sample for each worker that reports one."""
        families = {name: _family(name, text) for name, text in WORKER_METRICS.items()}
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
