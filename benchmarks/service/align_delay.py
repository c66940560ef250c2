"""Measure how much alignment delays audio between the engine's message and the socket.

Two servers in this process alternate on equal streams of an engine without word times: one
estimates them, the other uses the online aligner. For every engine message, the benchmark records
its arrival and when the last of its audio was written to the socket. The clients run in a separate
process. A frame is late if it left after its listener had run out of audio.
"""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import percentiles, provenance, publish
from benchmarks.service.paced_streams import Plan, carry
from benchmarks.service.transport import plan_streams
from voiceagent_tts.cli.serve import configure_logs
from voiceagent_tts.config import Settings
from voiceagent_tts.seam.aligner_messages import AlignEvent
from voiceagent_tts.seam.events import AudioStep, Event
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextDone, ContextReport
from voiceagent_tts.synthesizer.worker_client import EventHandler, WorkerClient

_MODES = {"without": "off", "with": "online"}


@dataclass(slots=True)
class Delays:
    """Measurements of all streams of one mode.

    Attributes:
        hop_ms: time from the engine's message to the socket, per message.
        late_frames: messages that left after their listener had run out of audio.
        words: number of sent words.
        words_late: number of sent words whose time was known too late.
    """

    hop_ms: list[float] = field(default_factory=list[float])
    late_frames: int = 0
    words: int = 0
    words_late: int = 0

    def figures(self, mode: str) -> dict[str, Any]:
        """Return the figures by their names in the JSON object."""
        named = percentiles(self.hop_ms, digits=3)
        return {
            **{f"{mode}_{name}": value for name, value in named.items()},
            f"{mode}_messages": len(self.hop_ms),
            f"{mode}_late_frames": self.late_frames,
        }


class _DelayRecorder:
    """Records when audio arrives from the engine and when it leaves, for one mode at a time."""

    def __init__(self) -> None:
        self.delays = Delays()
        self._came: dict[Context, deque[tuple[int, float]]] = {}  # (end_sample, when)
        self._sent: dict[Context, int] = {}

    def record_arrival(self, context: Context, end_sample: int) -> None:
        self._came.setdefault(context, deque()).append((end_sample, time.perf_counter()))

    def leave(self, context: Context, samples: int) -> None:
        now = time.perf_counter()
        waiting = self._came.get(context)
        if waiting is None:
            return
        sent = self._sent[context] = self._sent.get(context, 0) + samples
        while waiting and waiting[0][0] <= sent:
            self.delays.hop_ms.append((now - waiting.popleft()[1]) * 1000)

    def end(self, context: Context, report: ContextReport) -> None:
        if self._came.pop(context, None) is not None:
            self.delays.words += report.words.sources.total()
            self.delays.words_late += report.words.late


@contextlib.contextmanager
def recording(recorder: _DelayRecorder) -> Iterator[None]:
    """Record the engine messages and socket writes of every context within the block."""
    attach, sent, close = WorkerClient.attach, Context.sent, Context._report_done

    def attach_watched(worker: WorkerClient, listener: EventHandler) -> int:
        context = getattr(listener, "__self__", None)
        if not isinstance(context, Context) or context.options.is_probe:
            return attach(worker, listener)

        def record(event: Event | AlignEvent) -> None:
            if isinstance(event, AudioStep):
                recorder.record_arrival(context, event.rows[0].chunk.end_sample)
            listener(event)

        return attach(worker, record)

    def sent_watched(context: Context, samples: int) -> None:
        underrun_s = context._clock.underrun_s
        sent(context, samples)
        recorder.leave(context, samples)
        recorder.delays.late_frames += context._clock.underrun_s > underrun_s

    def close_watched(context: Context) -> ContextDone:
        done = close(context)
        recorder.end(context, done.report)
        return done

    with (
        patch.object(WorkerClient, "attach", attach_watched),
        patch.object(Context, "sent", sent_watched),
        patch.object(Context, "_report_done", close_watched),
    ):
        yield


def _listen(url: str, server_pid: int, plans: Sequence[Plan]) -> None:
    """Run the clients of all streams; called in a separate process."""
    asyncio.run(carry(url, server_pid, plans))


async def measure(
    plans: Sequence[Plan], rounds: int, rtf: float, console: Console
) -> dict[str, Delays]:
    """Run equal streams in both modes, alternating."""
    recorders = {mode: _DelayRecorder() for mode in _MODES}
    throttle = {"without_words": True, "rtf": rtf}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as clients:
        async with contextlib.AsyncExitStack() as stack:
            servers: dict[str, RunningServer] = {}
            for mode, aligner in _MODES.items():
                settings = Settings(port=0, cache_mb=0, throttle=throttle, aligner=aligner)  # type: ignore[arg-type]
                servers[mode] = await stack.enter_async_context(running(settings))
            for turn in range(rounds):
                for mode, server in servers.items():
                    with recording(recorders[mode]), console.status(f"round {turn + 1}, {mode}"):
                        await asyncio.get_running_loop().run_in_executor(
                            clients, _listen, server.websocket_url, os.getpid(), plans
                        )
    return {mode: recorder.delays for mode, recorder in recorders.items()}


def main(
    streams: Annotated[int, typer.Option(min=1)] = 20,
    speech_s: Annotated[float, typer.Option(min=1, help="Minimum speech per stream, in s.")] = 10.0,
    rtf: Annotated[float, typer.Option(min=0, help="RTF of the throttled engine.")] = 0.5,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each mode.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the texts and arrivals.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
) -> None:
    """Measure how long audio takes through the server, with and without alignment."""
    origin = provenance()
    console = Console(stderr=True)
    configure_logs(is_json=False, is_quiet=True)
    plans = plan_streams(streams, speech_s, ramp_s=2.0, seed=seed)
    delays = asyncio.run(measure(plans, rounds, rtf, console))
    figures: dict[str, Any] = {}
    for mode, seen in delays.items():
        figures |= seen.figures(mode)
    difference = figures["with_p50_ms"] - figures["without_p50_ms"]
    figures["difference_p50_ms"] = round(difference, 3)
    figures["words_late_pct"] = round(100 * delays["with"].words_late / delays["with"].words, 3)
    table = Table("figure", "value", title="engine's message to socket")
    for name, value in figures.items():
        table.add_row(name, str(value))
    Console().print(table)
    publish({**figures, "streams": streams, "rtf": rtf, "rounds": rounds, **origin}, json)


if __name__ == "__main__":
    typer.run(main)
