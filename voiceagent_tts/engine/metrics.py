"""Metrics of an engine: counts and seconds since it started, and the state of its contexts."""

from collections.abc import Iterable
from dataclasses import dataclass

from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sequence import EngineContext, SequenceState
from voiceagent_tts.engine.voice_cache import CacheCounts


@dataclass(slots=True)
class Counts:
    """Totals since the engine started.

    Attributes:
        starts: sequences that were given a row.
        underruns: number of gaps that listeners heard because frames were late.
        underrun_s: length of these gaps.
        discarded_s: audio that was generated and not heard because of a cancel.
        refused: contexts that were not admitted.
        lost_texts: contexts that failed because the model had lost the text.
    """

    starts: int = 0
    underruns: int = 0
    underrun_s: float = 0.0
    discarded_s: float = 0.0
    refused: int = 0
    lost_texts: int = 0

    def metrics(self) -> dict[str, float]:
        """Return the totals under their names in the metrics."""
        return {
            "starts_total": self.starts,
            "underruns_total": self.underruns,
            "underrun_seconds_total": self.underrun_s,
            "discarded_seconds_total": self.discarded_s,
            "refused_total": self.refused,
            "lost_texts_total": self.lost_texts,
        }


def device_metrics(runner: Runner) -> dict[str, float]:
    """Return what the time of steps went to, and how passes run."""
    timings = runner.timings
    return {
        "steps_total": timings.steps,
        "frames_total": timings.frames,
        "prefill_seconds_total": timings.prefill_s,
        "predictor_seconds_total": timings.predictor_s,
        "talker_seconds_total": timings.talker_s,
        "codec_seconds_total": timings.codec_s,
        "host_seconds_total": timings.host_s,
        "graph_memory_bytes": runner.graphs.bytes,
        "has_graphs": runner.graphs.are_used,
        "has_fused_kernels": runner.kernels == "fused",
        "has_fused_codec": runner.codec_kernels == "fused",
    }


def cache_metrics(clones: CacheCounts, prefixes: CacheCounts) -> dict[str, float]:
    """Return how often loaded clones and computed beginnings of prompts were there."""
    return {
        "clone_cache_hits_total": clones.hits,
        "clone_cache_misses_total": clones.misses,
        "prefix_cache_hits_total": prefixes.hits,
        "prefix_cache_misses_total": prefixes.misses,
    }


def context_metrics(contexts: Iterable[EngineContext], now: float) -> dict[str, float]:
    """Return the state of contexts at `now`."""
    active = [context for context in contexts if context.active is not None]
    heard = [c for c in active if c.has_spoken and not c.is_batch and c.can_step]
    starved = (c.active is not None and c.active.state is SequenceState.STARVED for c in active)
    return {
        "used_rows": len(active),
        "starved_rows": sum(starved),
        "lowest_lead_seconds": min((c.lead_s(now) for c in heard), default=0.0),
    }
