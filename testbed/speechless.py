"""A worker that takes all text and says nothing: what a server does about a long text, alone.

Speech of 20,000 characters takes minutes; a server reads the end of a text when its start is
spoken. Here it is spoken at once.
"""

import asyncio
import itertools

from voiceagent_tts.plugins.cache.caching_worker import CachingProxy
from voiceagent_tts.seam.aligner_messages import AlignCommand
from voiceagent_tts.seam.commands import Append, Command, Submit
from voiceagent_tts.seam.events import Capabilities, Done, SegmentEnd
from voiceagent_tts.synthesizer.aligners import Aligners, AttachAligners
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.workers import EventHandler, OnFree, Worker


class SpeechlessProxy(CachingProxy):
    """Puts the cache of phrases, and behind it a worker that says nothing, before each worker."""

    def connect(
        self, worker: Worker, request: ContextRequest, aligners: Aligners | None
    ) -> tuple[Worker, AttachAligners | None]:
        """Return what a context uses in place of its worker; it has no aligners."""
        return super().connect(_Speechless(worker.capabilities), request, None)


class _Speechless:
    """Answers each text as an engine does that has nothing to say of it."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._numbers = itertools.count(1)
        self._handlers: dict[int, EventHandler] = {}

    def attach(self, handler: EventHandler, on_free: OnFree | None = None) -> int:
        """Reserve a row, of which there are many."""
        number = next(self._numbers)
        self._handlers[number] = handler
        return number

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        """Release a row."""
        self._handlers.pop(context, None)

    def send(self, command: Command | AlignCommand) -> None:
        """Answer a text in a later iteration of the event loop; ignore all else."""
        if isinstance(command, (Submit, Append)):
            asyncio.get_running_loop().call_soon(self._end, command)

    def _end(self, command: Submit | Append) -> None:
        handler = self._handlers.get(command.context)
        if handler is not None:
            handler(SegmentEnd(command.context, command.char_base + len(command.text), 0))
            if not command.more:
                handler(Done(command.context, 0))
