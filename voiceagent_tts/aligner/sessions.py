"""The contexts of one aligner process: commands in, word times and failures out.

`AlignerSessions` is the base of the online and the forced aligner: it reads the inbox, keeps one
session per context, and turns an error into the failure of that context alone. Deadlines and
playout are the server's task.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from voiceagent_tts.core import AudioChunk
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.seam.aligner_messages import (
    AlignCommand,
    AlignInbox,
    AlignOutbox,
    Expect,
    Finish,
    Follow,
)
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import AudioStep, Cancelled, Capabilities, Done, Failed, SegmentEnd
from voiceagent_tts.seam.failing import failing

SessionT = TypeVar("SessionT")

ContextInput = AudioChunk | Expect | SegmentEnd | Finish
"""Inputs of an open context."""


class AlignerSessions(ABC, Generic[SessionT]):
    """Base of both aligners' workers; implements the interface that `worker.host` drives."""

    def __init__(self, inbox: AlignInbox, outbox: AlignOutbox, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._inbox = inbox
        self._outbox = outbox
        self._sessions: dict[int, SessionT] = {}

    @property
    def rows_used(self) -> int:
        """Number of open contexts."""
        return len(self._sessions)

    @property
    def metrics(self) -> dict[str, float]:
        """Empty: an aligner has no metrics beyond those of every worker."""
        return {}

    def step(self) -> float | None:
        """Handle every waiting command, then align what is due.

        Returns:
            0.0 if more work may be due at once, None if the process can wait for commands.
        """
        for command in self._inbox():
            self._receive(command)
        return self._align_due()

    def close(self) -> None:
        """Drop every context; idempotent."""
        self._sessions.clear()

    @abstractmethod
    def _open(self, language: str, voice: str) -> SessionT:
        """Open the session of a new context; an `InvalidRequestError` fails the context."""

    @abstractmethod
    def _handle(self, context: int, session: SessionT, received: ContextInput) -> None:
        """Handle one input of an open context."""

    def _align_due(self) -> float | None:
        return None

    def _receive(self, command: AlignCommand) -> None:
        match command:
            case AudioStep(rows):
                for row in rows:
                    self._dispatch(row.context, row.chunk)
            case Cancel(context):
                self._drop(context)
                self._outbox(Cancelled(context))
            case Follow(context, language, voice):
                with self._failing((context,)):
                    self._sessions[context] = self._open(language, voice)
            case _:
                self._dispatch(command.context, command)

    def _dispatch(self, context: int, received: ContextInput) -> None:
        session = self._sessions.get(context)
        if session is None:  # it has failed, and its sender has not received the failure yet
            return
        with self._failing((context,)):
            self._handle(context, session, received)

    def _failing(self, contexts: Iterable[int]) -> AbstractContextManager[None]:
        return failing(f"the {self.capabilities.engine} aligner", contexts, self._fail)

    def _fail(self, context: int, error: VoiceAgentError) -> None:
        self._drop(context)
        self._outbox(Failed(context, error.code, error.message))

    def _finish(self, context: int, end_sample: int) -> None:
        self._drop(context)
        self._outbox(Done(context, end_sample))

    def _drop(self, context: int) -> None:
        self._sessions.pop(context, None)


def aligner_capabilities(
    name: str, model: str, max_contexts: int, placement: str | None = None
) -> Capabilities:
    """Capabilities that an aligner's process reports: no languages and no voices."""
    return Capabilities(
        engine=name,
        model=model,
        has_native_words=False,
        text_feeding=(),
        languages=(),
        voices=(),
        max_rows=max_contexts,
        aligner=placement,
    )
