"""The sessions of one online aligner, behind the same seam as an engine.

Commands come from an inbox, answers go to an outbox, each context on its own. What goes wrong with
one context ends that one alone. Knows no sockets, no deadlines and no listeners.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.errors import EngineError, VoiceAgentError
from voiceagent_tts.seam.aligner import Aligner, AlignSession
from voiceagent_tts.seam.alignment import (
    AlignCommand,
    Aligned,
    AlignInbox,
    AlignOutbox,
    Expect,
    Finish,
    Follow,
)
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Failed,
    SegmentEnd,
)

_MAX_CONTEXTS = 1_024

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Followed:
    """One context's session, and how much of its sound it has heard."""

    session: AlignSession
    end_sample: int = 0


class AlignerSessions:
    """Implements what `worker.host` runs, over an `Aligner`.

    Args:
        inbox: where commands come from.
        outbox: where answers go.
        aligner: opens the sessions.
    """

    def __init__(self, inbox: AlignInbox, outbox: AlignOutbox, aligner: Aligner) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._aligner = aligner
        self._contexts: dict[int, _Followed] = {}

    @property
    def capabilities(self) -> Capabilities:
        """What this process is; it speaks nothing."""
        return aligner_capabilities("online", "espeak-ng reference", _MAX_CONTEXTS)

    @property
    def rows_used(self) -> int:
        """Contexts that are followed now."""
        return len(self._contexts)

    @property
    def figures(self) -> dict[str, float]:
        """Nothing beside what every worker tells."""
        return {}

    def step(self) -> float | None:
        """Take all commands and answer them."""
        for command in self._inbox():
            self._take(command)
        return None

    def close(self) -> None:
        """Forget every context; idempotent."""
        for context in list(self._contexts):
            self._forget(context)

    def _take(self, command: AlignCommand) -> None:
        match command:
            case AudioStep(rows):
                for row in rows:
                    self._let_listen(row)
            case Cancel(context):
                self._forget(context)
                self._outbox(Cancelled(context))
            case Follow(context, language, voice):
                with self._failing(context):
                    self._contexts[context] = _Followed(self._aligner.open(language, voice))
            case _ if command.context in self._contexts:
                with self._failing(command.context):
                    self._tell(self._contexts[command.context].session, command)
            case _:
                pass  # of a context that has failed before its sender knew

    def _let_listen(self, row: ContextAudio) -> None:
        followed = self._contexts.get(row.context)
        if followed is not None:
            with self._failing(row.context):
                followed.end_sample = row.chunk.end_sample
                self._answer(row.context, followed.session.push(row.chunk.pcm))

    def _tell(self, session: AlignSession, command: Expect | SegmentEnd | Finish) -> None:
        match command:
            case Expect(_, words):
                session.append(words)
            case SegmentEnd(context, char_end, _):
                self._answer(context, session.end_segment(char_end))
            case Finish(context):
                self._answer(context, session.finish())
                self._outbox(Done(context, self._contexts[context].end_sample))
                self._forget(context)

    def _answer(self, context: int, words: tuple[WordTimestamp, ...]) -> None:
        """Say what has become known, and how far the aligner has come."""
        followed = self._contexts[context]
        outlook = followed.session.outlook()
        self._outbox(Aligned(context, words, outlook, followed.end_sample))

    @contextlib.contextmanager
    def _failing(self, context: int) -> Iterator[None]:
        """Turn an error into the failure of one context."""
        try:
            yield
        except VoiceAgentError as error:
            self._fail(context, error)
        except Exception as error:
            failure = EngineError.of("the online aligner", error)
            _logger.error("context %d: %s", context, failure)
            self._fail(context, failure)

    def _fail(self, context: int, error: VoiceAgentError) -> None:
        self._forget(context)
        self._outbox(Failed(context, error.code, error.message))

    def _forget(self, context: int) -> None:
        followed = self._contexts.pop(context, None)
        if followed is not None:
            followed.session.close()


def aligner_capabilities(name: str, model: str, max_contexts: int) -> Capabilities:
    """What an aligner's process says of itself when it is ready."""
    return Capabilities(
        engine=name,
        model=model,
        has_native_words=False,
        text_feeding=(),
        languages=(),
        voices=(),
        max_rows=max_contexts,
    )
