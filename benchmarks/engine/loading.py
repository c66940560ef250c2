"""Rows for benchmarks, loaded as a server loads them, and which fallbacks they run with.

A model whose graphs cannot be captured still has figures worth knowing. The engine itself goes on
without graphs. Where it cannot, because a failed capture has left the GPU unusable, the caller
loads the model again in a new process.
"""

import traceback
from dataclasses import dataclass
from typing import Any

from voiceagent_tts.engine.load import ModelSource, load_runner
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.model.checkpoint import Checkpoint


class GraphFault(Exception):
    """Loading failed while graphs were wanted; the cause is the exception that it was raised from.

    Try again in a new process with `has_graphs=False`.
    """

    @property
    def details(self) -> str:
        """Traceback of the cause."""
        return "".join(traceback.format_exception(self.__cause__))


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """A model's rows and their fallbacks.

    Attributes:
        checkpoint: the model.
        runner: its rows.
    """

    checkpoint: Checkpoint
    runner: Runner

    def described(self) -> dict[str, Any]:
        """Return how the rows run, and why fused kernels or graphs are missing."""
        weights = self.checkpoint.network.talker.codec_embedding
        precision = str(weights.dtype).removeprefix("torch.")
        return {"precision": precision, **self.runner.description}


def load_rows(options: Qwen3Options, source: ModelSource | None = None) -> LoadedRows:
    """Load a model's rows.

    Args:
        options: as for a server.
        source: replaces the files of `options.model`.

    Raises:
        GraphFault: loading failed with graphs; it may succeed without.
        CheckpointError: the model cannot be loaded at all.
    """
    try:
        checkpoint, runner = load_runner(options, source)
    except CheckpointError:
        raise
    except Exception as error:
        if options.has_graphs:
            raise GraphFault(str(error)) from error
        raise
    return LoadedRows(checkpoint, runner)
