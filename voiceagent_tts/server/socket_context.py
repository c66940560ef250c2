"""One context of a socket, from the message that opens it to its `done`.

Opening a context and charging its text may take seconds: a worker restarts, Redis is away, a
lexicon is read. Both happen in a task of the context. What the client sends meanwhile waits in the
context's inbox, so that no caller of this module waits, and a `cancel` never stands behind
anything.
"""

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator

import structlog

from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.protocol.messages import ContextEnd, ContextFlush, ContextOpen, ContextText
from voiceagent_tts.protocol.server_connection import ServerConnection
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.context_log import Origin
from voiceagent_tts.server.context_writer import ContextWriter, Outgoing
from voiceagent_tts.server.refusals import Refusals
from voiceagent_tts.server.socket_writer import SocketWriter
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.server.turns import Turn
from voiceagent_tts.synthesizer.events import ContextDone, SpokenText
from voiceagent_tts.synthesizer.options import ContextOptions

Input = ContextText | ContextFlush | ContextEnd

_log = structlog.get_logger(__name__)


class SocketContext:
    """Opens a context, feeds it, and ends it, without ever letting its caller wait.

    Args:
        state: what all routes share.
        connection: builds the messages.
        socket: sends them; it removes the context with its `done`.
        refusals: answers errors.
        message: what the client asked for.
        origin: where the context comes from.
    """

    def __init__(
        self,
        state: ServerState,
        connection: ServerConnection,
        socket: SocketWriter,
        refusals: Refusals,
        message: ContextOpen,
        origin: Origin,
    ) -> None:
        self.context_id = message.context_id
        self._state = state
        self._connection = connection
        self._socket = socket
        self._refusals = refusals
        self._message = message
        self._origin = origin
        self._turn: Turn | None = None  # once the context is open
        self._writer: ContextWriter | None = None
        self._inbox = _Inbox(state.settings.max_text_chars)  # what waits for the task
        self._dropped_text = ""  # text that still waited at the end
        self._task = asyncio.create_task(self._open())

    # Messages of the client.

    def feed(self, message: Input) -> None:
        """Act on text, a flush or the end of the text, after all that came before it.

        Raises:
            InvalidRequestError: too much text waits (`text_too_long`); the message is dropped.
        """
        if self._turn is None or self._inbox:
            self._inbox.put(message)
        elif not self._act_now(self._turn, message):
            self._inbox.put(message)
            self._task = asyncio.create_task(self._empty_inbox(self._turn))

    def cancel(self, played_ms: int | None) -> None:
        """Stop the context and answer with its cut, or end it before it is open."""
        self._after_first_step(functools.partial(self._cancel, played_ms))

    def _cancel(self, played_ms: int | None) -> None:
        if self.context_id not in self._socket.contexts:
            return  # it was refused, and is over
        self._stop_task()
        if self._writer is not None:
            self._writer.cancel(played_ms, self._dropped_text)
            return
        cut = self.spoken_text.cut(0)
        basis = "clock" if played_ms is None else "played_ms"
        self._socket.answer(self._connection.cancelled(self.context_id, cut, basis))
        self._socket.answer(self._connection.done(self.context_id, "cancelled", chars=0))
        self._socket.remove(self.context_id)

    def fail(self, error: VoiceAgentError) -> None:
        """End the context with an error: a message of the client could not be handled."""
        self._stop_task()
        if self._turn is None:
            self._refuse(error)
        else:
            self._turn.context.fail(error)

    def abandon(self) -> None:
        """Cancel for a client that is gone."""
        self._after_first_step(self._abandon)

    def _abandon(self) -> None:
        self._stop_task()
        if self._turn is not None:
            self._turn.context.abandon()

    def _after_first_step(self, end: Callable[[], None]) -> None:
        """Call `end` now, or when the task has begun to open the context.

        Most contexts are open after the first step. A context that is cancelled in the same moment
        is counted and logged like any other.
        """
        if self._turn is None:
            asyncio.get_running_loop().call_soon(end)
        else:
            end()

    @property
    def spoken_text(self) -> SpokenText:
        """What the client has sent and what of it was said, also after the end."""
        waiting = self._dropped_text + self._inbox.text
        if self._turn is None:
            return SpokenText(waiting)
        return self._turn.context.spoken_text(waiting)

    # Messages to the client.

    def next_message(self) -> Outgoing | None:
        """The next message, or None if there is none yet."""
        if self._writer is None:
            return None
        message = self._writer.next_message()
        if self._writer.done is not None:
            self._stop_task()
        return message

    @property
    def done(self) -> ContextDone | None:
        """How the context ended, once `next_message` has returned its `done`."""
        return None if self._writer is None else self._writer.done

    @property
    def queued_bytes(self) -> int:
        """Bytes of audio that wait to be sent."""
        return 0 if self._writer is None else self._writer.queued_bytes

    # What takes time.

    async def _open(self) -> None:
        on_event = functools.partial(self._socket.mark_ready, self.context_id)
        started = time.monotonic()
        try:
            turn = await self._state.turns.open(self._origin, _options(self._message), on_event)
        except VoiceAgentError as error:
            self._refuse(error)
            return
        except Exception as error:  # one context must not end the others of the socket
            self._refuse(VoiceAgentError.unexpected(error))
            return
        self._set_open(turn, round((time.monotonic() - started) * 1000))
        await self._empty_inbox(turn)

    def _set_open(self, turn: Turn, queue_ms: int) -> None:
        self._refusals.note_accepted()
        context, message = turn.context, self._message
        self._turn = turn
        self._writer = ContextWriter(
            self._connection,
            message,
            context,
            self._state.provenance.start_record(context),
            functools.partial(self._socket.mark_ready, self.context_id),
            functools.partial(self._refusals.note, context_id=self.context_id),
            self._state.metrics,
        )
        _log.info(
            "context_opened",
            **self._origin.ids,
            voice=context.voice.name,
            language=context.language,
            metadata=message.metadata,
        )
        opened = self._connection.opened(
            self.context_id,
            voice=context.voice.name,
            language=context.language,
            seed=message.seed,
            queue_ms=queue_ms,
        )
        self._socket.answer(opened)

    def _refuse(self, error: VoiceAgentError) -> None:
        self._refusals.answer(error, self.context_id, self._message.metadata)
        self._socket.answer(self._connection.done(self.context_id, "error", chars=0))
        self._socket.remove(self.context_id)

    async def _empty_inbox(self, turn: Turn) -> None:
        while self._inbox:
            message = self._inbox.first
            if not self._act_now(turn, message):
                assert isinstance(message, ContextText), "nothing else waits to be charged"
                with self._answering_errors(turn):
                    await turn.push_text(message.text)
                    self._refusals.note_accepted()
            self._inbox.pop()

    # What takes none.

    def _act_now(self, turn: Turn, message: Input) -> bool:
        """Act on a message; return False for text that must be charged first."""
        with self._answering_errors(turn):
            match message:
                case ContextText(text=text):
                    if not turn.push_text_now(text):
                        return False
                    self._refusals.note_accepted()
                case ContextFlush(flush_id=flush_id):
                    turn.context.flush(flush_id)
                case ContextEnd():
                    turn.context.finish()
        return True

    @contextlib.contextmanager
    def _answering_errors(self, turn: Turn) -> Iterator[None]:
        """Answer what the context refuses; end it with an unexpected error."""
        try:
            yield
        except VoiceAgentError as error:
            self._refusals.answer(error, self.context_id)
        except Exception as error:
            turn.context.fail(VoiceAgentError.unexpected(error))

    def _stop_task(self) -> None:
        self._task.cancel()
        self._dropped_text += self._inbox.text
        self._inbox.clear()


class _Inbox:
    """What a context cannot act on yet, in order.

    Args:
        max_chars: longest text that waits; a flush counts as one character.
    """

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._messages: deque[Input] = deque()
        self._chars = 0

    def __bool__(self) -> bool:
        return bool(self._messages)

    @property
    def first(self) -> Input:
        """The oldest message."""
        return self._messages[0]

    @property
    def text(self) -> str:
        """The text of all messages."""
        return "".join(each.text for each in self._messages if isinstance(each, ContextText))

    def put(self, message: Input) -> None:
        """Append a message.

        Raises:
            InvalidRequestError: too much text waits (`text_too_long`); the message is dropped.
        """
        chars = self._chars + _chars_of(message)
        if chars > self._max_chars and not isinstance(message, ContextEnd):
            raise InvalidRequestError(
                f"expected at most {self._max_chars} characters waiting to be spoken, got {chars}; "
                "send the rest once audio has arrived",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        self._messages.append(message)
        self._chars = chars

    def pop(self) -> None:
        """Remove the oldest message."""
        self._chars -= _chars_of(self._messages.popleft())

    def clear(self) -> None:
        """Remove all messages."""
        self._messages.clear()
        self._chars = 0


def _chars_of(message: Input) -> int:
    return len(message.text) if isinstance(message, ContextText) else 1


def _options(message: ContextOpen) -> ContextOptions:
    """The synthesizer's options for a context, from the client's message."""
    return ContextOptions(
        voice=message.voice,
        language=message.language,
        speech=SpeechOptions(
            instruct=message.instruct,
            speed=message.speed,
            seed=message.seed,
            initial_frames=message.initial_frames,
            keeps_silence=message.leading_silence,
            is_batch=message.priority == "batch",
        ),
        max_buffer_delay_ms=message.max_buffer_delay_ms,
        max_lead_s=message.max_lead_s,
        text_feeding=message.text_feeding,
        lexicon=check_entries(message.lexicon or {}),
        has_markup=message.markup,
        idle_s=message.idle_s,
        cache="use" if message.cache else "off",
        is_strict=message.strict_language,
    )
