"""A context whose worker is a test: what it is sent, and what it answers."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from voiceagent_tts.seam.aligner_messages import AlignCommand
from voiceagent_tts.seam.commands import Cancel, Command, Feeding, SpeechOptions
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.synthesizer import context as context_module
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.options import ContextOptions, ContextRequest, Limits
from voiceagent_tts.synthesizer.words import MakeWords
from voiceagent_tts.synthesizer.workers import EventHandler, OnFree
from voiceagent_tts.voices import Voice

LIMITS = Limits(max_lead_s=8.0, max_unsent_s=10.0)


class ScriptedWorker:
    """A worker that notes what it is sent, and says what the test says.

    Attributes:
        commands: what it was sent, in order.
        answer: sends an event to the context.
    """

    capabilities = Capabilities("e", "m", True, ("segment", "token"), ("en",), ("v",), 1)

    def __init__(self) -> None:
        self.commands: list[Command | AlignCommand] = []

    def attach(self, handler: EventHandler, on_free: OnFree | None = None) -> int:
        self.answer: EventHandler = handler
        return 1

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        if needs_cancel:
            self.commands.append(Cancel(context))

    def send(self, command: Command | AlignCommand) -> None:
        self.commands.append(command)


def open_context(
    worker: ScriptedWorker,
    options: ContextOptions,
    *,
    limits: Limits = LIMITS,
    feeding: Feeding = "segment",
    stretch: float = 1.0,
    make_words: MakeWords | None = None,
    on_event: Callable[[], None] | None = None,
    on_report: Callable[[ContextReport], None] = lambda report: None,
) -> Context:
    """A context of English on a worker; arguments as for `ContextRequest` and `Context`."""
    voice = Voice("v", "w")
    return Context(
        worker,
        ContextRequest(options, voice, "en", feeding, SpeechOptions(), stretch),
        limits,
        make_words,
        on_event=on_event,
        on_end=lambda _, report: on_report(report),
    )


def run_by_the_loops_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let contexts tell the time by the event loop, whose clock a test may script."""
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(context_module, "time", clock)
