"""The contexts of one aligner process: commands in, word times and failures out.

`AlignerSessions` is the base of the online and the forced aligner: it reads the inbox, keeps one
session per context, and turns an error into the failure of that context alone. `OnlineSessions`
serves an online aligner. Deadlines and playout are the server's task.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from voiceagent_tts.core import AudioChunk, Word, WordTimestamp
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.seam.aligner_messages import (
    AlignCommand,
    Aligned,
    AlignInbox,
    AlignOutbox,
    Expect,
    Finish,
    Follow,
)
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import AudioStep, Cancelled, Capabilities, Done, Failed, SegmentEnd
from voiceagent_tts.seam.failing import failing

_MAX_ONLINE_CONTEXTS = 1_024

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
        for context in list(self._sessions):
            self._drop(context)

    @abstractmethod
    def _open(self, language: str, voice: str) -> SessionT:
        """Open the session of a new context; an `InvalidRequestError` fails the context."""

    @abstractmethod
    def _handle(self, context: int, session: SessionT, received: ContextInput) -> None:
        """Handle one input of an open context."""

    def _align_due(self) -> float | None:
        """Align the audio that this step's commands made due; return as `step` does."""
        return None

    def _close(self, session: SessionT) -> None:
        """Release what a session holds; called once, when its context is dropped."""

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
        """Turn an error into the failure of `contexts`; other contexts continue."""
        return failing(f"the {self.capabilities.engine} aligner", contexts, self._fail)

    def _fail(self, context: int, error: VoiceAgentError) -> None:
        self._drop(context)
        self._outbox(Failed(context, error.code, error.message))

    def _finish(self, context: int, end_sample: int) -> None:
        """Drop a context after its last word, and report it as done."""
        self._drop(context)
        self._outbox(Done(context, end_sample))

    def _drop(self, context: int) -> None:
        session = self._sessions.pop(context, None)
        if session is not None:
            self._close(session)


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


class AlignSession(Protocol):
    """Aligns one context online; every call returns the words that became final.

    Positions are samples at 24 kHz on the context's clock. Each word becomes final once, in order,
    as a verbatim span of the text.
    """

    def append(self, words: Iterable[Word]) -> None:
        """Append more words of the context, in order; the text may still grow."""
        ...

    def push(self, pcm: bytes) -> tuple[WordTimestamp, ...]:
        """Append the context's next audio: PCM16, mono, 24 kHz, of any length."""
        ...

    def tentative(self) -> tuple[WordTimestamp, ...]:
        """The best current times of the next words that are not final, in order.

        They are the words that have probably begun in the audio so far and the few after them. The
        times may change with every push; none is before the start of the last final word.
        """
        ...

    def end_segment(self, char_end: int) -> tuple[WordTimestamp, ...]:
        """Make the words that begin before `char_end` final: the audio so far contains them."""
        ...

    def finish(self) -> tuple[WordTimestamp, ...]:
        """Make all remaining words final: all words and all audio have arrived."""
        ...

    def close(self) -> None:
        """Release the context; idempotent."""
        ...


class Aligner(Protocol):
    """Opens the online sessions of all contexts of a process."""

    def open(self, language: str, voice: str) -> AlignSession:
        """Open the session of a new context.

        Args:
            language: code of the text's language, with an optional region.
            voice: key under which the aligner keeps what it learns about the voice.
        """
        ...


@dataclass(slots=True)
class _OnlineContext:
    """One context's session, and the end of the audio that it has received."""

    session: AlignSession
    end_sample: int = 0


class OnlineSessions(AlignerSessions[_OnlineContext]):
    """Answers every input of a context at once, from that context's online session."""

    def __init__(self, inbox: AlignInbox, outbox: AlignOutbox, aligner: Aligner) -> None:
        capabilities = aligner_capabilities("online", "espeak-ng reference", _MAX_ONLINE_CONTEXTS)
        super().__init__(inbox, outbox, capabilities)
        self._aligner = aligner

    def _open(self, language: str, voice: str) -> _OnlineContext:
        return _OnlineContext(self._aligner.open(language, voice))

    def _handle(self, context: int, session: _OnlineContext, received: ContextInput) -> None:
        match received:
            case AudioChunk(_, pcm):
                session.end_sample = received.end_sample
                self._answer(context, session, session.session.push(pcm))
            case Expect(_, words):
                session.session.append(words)
            case SegmentEnd(_, char_end, _):
                self._answer(context, session, session.session.end_segment(char_end))
            case Finish():
                self._answer(context, session, session.session.finish())
                self._finish(context, session.end_sample)

    def _close(self, session: _OnlineContext) -> None:
        session.session.close()

    def _answer(
        self, context: int, session: _OnlineContext, words: tuple[WordTimestamp, ...]
    ) -> None:
        """Send the words that have become final, and the tentative words after them."""
        tentative = session.session.tentative()
        self._outbox(Aligned(context, words, tentative, session.end_sample))
