"""What an engine tells its operators: counts and seconds since it started, and how it is now."""

from collections.abc import Iterable
from dataclasses import dataclass

from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sequence import Speaker


@dataclass(slots=True)
class Counts:
    """Since the engine started.

    Attributes:
        starts: of runs.
        underruns: how often a listener ran dry for want of frames.
        underrun_s: the silence that they heard.
        discarded_s: audio made and, because of a cancel, heard by nobody.
        refused: contexts that were not let in.
    """

    starts: int = 0
    underruns: int = 0
    underrun_s: float = 0.0
    discarded_s: float = 0.0
    refused: int = 0

    def figures(self) -> dict[str, float]:
        """Under their names in the metrics."""
        return {
            "starts_total": self.starts,
            "underruns_total": self.underruns,
            "underrun_seconds_total": self.underrun_s,
            "discarded_seconds_total": self.discarded_s,
            "refused_total": self.refused,
        }


def figures_of_device(runner: Runner) -> dict[str, float]:
    """What the time of steps went to, and what memory is left."""
    timings = runner.timings
    return {
        "steps_total": timings.steps,
        "frames_total": timings.frames,
        "prefill_seconds_total": timings.prefill_s,
        "predictor_seconds_total": timings.predictor_s,
        "talker_seconds_total": timings.talker_s,
        "codec_seconds_total": timings.codec_s,
        "host_seconds_total": timings.host_s,
        "free_pages": runner.free_pages,
        "graph_memory_bytes": runner.graph_bytes,
        "has_graphs": runner.has_graphs,
        "has_fused_kernels": runner.kernels == "fused",
    }


def figures_of(speakers: Iterable[Speaker], now: float) -> dict[str, float]:
    """How contexts are now."""
    runs = [speaker for speaker in speakers if speaker.run is not None]
    heard = [s for s in runs if s.has_spoken and not s.is_batch and s.can_speak]
    return {
        "used_rows": len(runs),
        "starved_rows": sum(s.run is not None and s.run.is_starved for s in runs),
        "lowest_lead_seconds": min((s.lead_s(now) for s in heard), default=0.0),
    }
