"""`Reply`: speaks one turn despite failures, for both hosts.

Text, marks and the server's events pass through one inbox, and one task receives them, one item at
a time: whatever it waits for meanwhile, nothing else changes the turn. When a server context breaks
off (the connection is lost, the engine dies, the server is silent or overloaded), another one
speaks the rest, from the word that broke off; text that arrives meanwhile belongs to the rest. The
hosts decide how long to retry, and what happens to audio and words.
"""

import asyncio
import enum
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import Any, Generic, TypeVar

from voiceagent_tts.adapters.turn import Turn, TurnState, TurnWord
from voiceagent_tts.client import ClientSocket
from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError
from voiceagent_tts.protocol.client_connection import (
    ClientAudio,
    ClientEvent,
    ContextRecord,
    OpenOptions,
    timestamps_of,
)
from voiceagent_tts.protocol.messages import WordsMessage

_ROUNDING_S = 0.001
"""Time by which a timer may end too early."""
_REFUSALS = {ErrorCode.INVALID_VOICE, ErrorCode.INVALID_LANGUAGE, ErrorCode.INVALID_PARAM}
"""Codes with which a server refuses settings, whatever the text."""
_TurnT = TypeVar("_TurnT", bound=Turn)
_SettingsT = TypeVar("_SettingsT")


class SilentServerError(EngineError):
    """The server owes audio, and has been silent for too long."""


class Mark(enum.Enum):
    """Marks that can follow text in the inbox."""

    FLUSH = enum.auto()
    """Speak the text that has arrived."""
    END = enum.auto()
    """No more text comes."""


Item = str | Mark | ClientEvent | Exception
"""Items of a reply's inbox; an exception ends the reply."""


@dataclass(eq=False, slots=True)
class Choice(Generic[_SettingsT]):
    """Settings that a user has chosen, for all replies that begin until the next change.

    Attributes:
        number: how many choices came before it.
        is_refused: whether a server has refused them.
    """

    settings: _SettingsT
    number: int = 0
    is_refused: bool = False


class Choices(Generic[_SettingsT]):
    """What the user of a service has chosen, and what has worked last.

    Only a server knows its voices, and the languages and options of each. Where it refuses a
    choice, that is reported once, and what has worked before stays: a reply is spoken in the old
    voice, and not dropped like all others after it.
    """

    def __init__(self, settings: _SettingsT) -> None:
        self.current = Choice(settings)
        self._working = self.current

    def change(self, settings: _SettingsT) -> None:
        """Choose `settings`."""
        self.current = Choice(settings, self.current.number + 1)

    def note_working(self, choice: Choice[_SettingsT]) -> None:
        """A server speaks with `choice`; an older one may still be heard beside a newer one."""
        if choice.number > self._working.number:
            self._working = choice

    def replace(self, choice: Choice[_SettingsT]) -> Choice[_SettingsT] | None:
        """What stays in place of a `choice` that a server refuses; None if there is no other."""
        if choice is self._working:
            return None
        if choice is self.current:
            self.current = self._working
        return self._working


class Reply(ABC, Generic[_TurnT]):
    """Speaks one turn; the subclass of each host says what becomes of it.

    Args:
        choices: of its service.
        choice: with which it begins.
        timeout_s: how long the server may be silent while it owes audio.
        answer_timeout_s: how long it may take to answer the ping that follows the opening of each
            context; a busy server answers, and a dead one does not. None to send no ping.
    """

    def __init__(
        self,
        turn: _TurnT,
        choices: Choices[Any],
        choice: Choice[Any],
        *,
        timeout_s: float,
        answer_timeout_s: float | None = None,
    ) -> None:
        self.turn = turn
        self._choices, self._choice = choices, choice
        self._timeout_s = timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._inbox: asyncio.Queue[Item] = asyncio.Queue()
        self._opened_at_s = 0.0  # when the server context that speaks was opened
        self._resume_at_s = 0.0  # when the next attempt to speak the rest begins

    def send(self, item: Item) -> None:
        """Put an item into the inbox."""
        self._inbox.put_nowait(item)

    async def speak(self) -> None:
        """Speak until the server has sent the whole turn, or the turn has failed."""
        try:
            while not self.turn.is_over:
                try:
                    await self._step()
                except Exception as error:  # the history has what was heard, whatever failed
                    await self._break_off(error)
        finally:
            self.turn.abandon_context()

    def open(self, socket: ClientSocket) -> ContextRecord:
        """Open a server context that speaks the rest; return its record.

        Raises:
            VoiceAgentError: the server accepts no context now, or an option is wrong.
        """
        self._opened_at_s = time.monotonic()
        record = self.turn.open_context(socket, self.send, self._opened_at_s)
        if self._answer_timeout_s is not None:
            socket.send(socket.connection.ping())
        return record

    # What a host does.

    @abstractmethod
    def _open_options(self, settings: Any) -> OpenOptions:
        """The options of a server context that speaks with these settings of a choice."""

    @abstractmethod
    async def _report_refusal(self, error: InvalidRequestError) -> None:
        """Report that a server refuses the user's choice; what has worked before stays."""

    @abstractmethod
    async def _connect(self) -> ClientSocket:
        """Return an open socket, or raise what prevents it."""

    @abstractmethod
    async def _play(self, pcm: bytes) -> None:
        """Play audio that has arrived, after all audio before it."""

    @abstractmethod
    async def _expect_words(self, words: list[WordTimestamp]) -> None:
        """Announce words whose times have arrived, ahead of playback."""

    @abstractmethod
    async def _add_words(self, words: list[TurnWord]) -> None:
        """Add words whose audio has begun to arrive; without a record, their context has ended."""

    @abstractmethod
    def _wait_to_resume_s(self, error: Exception, *, has_audio: bool) -> float | None:
        """Wait before the next attempt to speak the rest; None if `error` ends the turn.

        Args:
            error: what ended the attempt before.
            has_audio: whether that attempt has brought audio.
        """

    @abstractmethod
    async def _end(self) -> None:
        """End the turn: all its text is spoken, or has no audio at all."""

    @abstractmethod
    async def _fail(self, error: Exception) -> None:
        """End the turn of which `error` leaves text unspoken."""

    # The loop.

    async def _step(self) -> None:
        """Open a context for text that none speaks, end the turn, or receive the next item."""
        resume_in_s = _rounded(self._resume_at_s - time.monotonic())
        is_idle = self.turn.record is None and resume_in_s == 0.0
        if is_idle and self.turn.rest.strip():
            self.open(await self._connect())
        elif is_idle and self.turn.state is TurnState.FINISHING:
            self.turn.state = TurnState.COMPLETE
            await self._end()
        elif (item := await self._next(resume_in_s)) is not None:
            await self._receive(item)

    async def _next(self, resume_in_s: float) -> Item | None:
        """The next item of the inbox; None when it is time to resume, if that is not now.

        Raises:
            SilentServerError: the server is silent for too long.
        """
        wait_s = self._patience_s() if self.turn.record else resume_in_s or None
        try:
            async with asyncio.timeout(wait_s):
                return await self._inbox.get()
        except TimeoutError:
            # Checked again: after a busy moment, items that have arrived come before a timeout.
            if self._inbox.empty() and self._patience_s() == 0.0:
                raise self._give_up_on_silence() from None
            return None

    def _patience_s(self) -> float | None:
        """How much longer the server may be silent; None while no answer is due."""
        now_s = time.monotonic()
        silent_s, timeout_s = self.turn.silent_s(now_s), self._timeout_s
        if self._answer_timeout_s is not None and self._is_unanswered:
            silent_s, timeout_s = now_s - self._opened_at_s, self._answer_timeout_s
        return None if silent_s is None else _rounded(timeout_s - silent_s)

    @property
    def _is_unanswered(self) -> bool:
        return self.turn.record is not None and self.turn.socket.received_at < self._opened_at_s

    def _give_up_on_silence(self) -> SilentServerError:
        """Return the error of a silent server; a connection may be lost without a sign."""
        socket = self.turn.socket
        is_lost = self._is_unanswered
        if self._answer_timeout_s is None:
            is_lost = _rounded(socket.received_at + self._timeout_s - time.monotonic()) == 0.0
        if is_lost:
            socket.give_up("the server does not answer")
        return SilentServerError(f"no answer from the server for {ceil(self._timeout_s)} s")

    async def _receive(self, item: Item) -> None:
        match item:
            case str():
                self.turn.append(item, time.monotonic())
            case Mark.FLUSH:
                self.turn.flush()
            case Mark.END:
                self.turn.end_text(time.monotonic())
            case Exception():
                raise item
            case _ if self.turn.is_spoken_by(getattr(item, "context_id", None)):
                await self._receive_event(item)
            case _:
                pass  # of an abandoned context

    async def _receive_event(self, event: ClientEvent) -> None:
        words = self.turn.receive(event, time.monotonic())
        match event:
            case ClientAudio():
                self._choices.note_working(self._choice)
                await self._play(event.pcm)
            case WordsMessage():
                await self._expect_words(self.turn.placed(timestamps_of(event)))
            case _:
                pass
        await self._add_words(words)

    async def _break_off(self, error: Exception) -> None:
        """Abandon the context, if there is one, and speak the rest later, or fail."""
        has_audio = self.turn.context_samples > 0
        self.turn.abandon_context()
        if self.turn.record is not None:
            await self._add_words(self.turn.break_off_context())
        if not has_audio and await self._replace_choice(error):
            return
        wait_s = self._wait_to_resume_s(error, has_audio=has_audio)
        if wait_s is None:
            self.turn.state = TurnState.FAILED
            await self._fail(error)
        else:
            self._resume_at_s = time.monotonic() + wait_s

    async def _replace_choice(self, error: Exception) -> bool:
        """Speak with settings that have worked, if there are some and the server refuses these."""
        if not (isinstance(error, InvalidRequestError) and error.code in _REFUSALS):
            return False
        refused = self._choice
        if (working := self._choices.replace(refused)) is None:
            return False
        self._choice, self.turn.options = working, self._open_options(working.settings)
        if not refused.is_refused:
            refused.is_refused = True
            await self._report_refusal(error)
        return True


def _rounded(wait_s: float) -> float:
    return wait_s if wait_s > _ROUNDING_S else 0.0
