import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from testbed.examples import examples
from testbed.protocol_ends import send_opened, session_limits
from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES, Cut, Word, WordTimestamp
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio, ClientConnection
from voiceagent_tts.protocol.messages import (
    CancelledMessage,
    ContextCancel,
    ContextCut,
    ContextFlush,
    ContextOpen,
    ContextOpened,
    ContextText,
    CutMessage,
    DoneMessage,
    FlushedMessage,
    WordsMessage,
    WordsMovedMessage,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError, WireState
from voiceagent_tts.protocol.server_connection import ServerConnection


@dataclass
class _Spoken:
    """What a correct server knows of one context."""

    text: str = ""
    words: int = 0
    samples: int = 0
    flushes: list[int] = field(default_factory=list[int])
    is_opened: bool = False
    is_cancelling: bool = False
    is_cancelled: bool = False


_ORDER = re.compile(r"o?[awf]*c?d")


class BackToBack(RuleBasedStateMachine):
    """A client and a server in any order of calls, with messages in flight both ways."""

    @initialize(max_contexts=st.integers(1, 3))
    def connect(self, max_contexts: int) -> None:
        self.max_contexts = max_contexts
        self.client = ClientConnection()
        self.server = ServerConnection(session_limits(max_contexts=max_contexts))
        self.to_server: deque[str] = deque()
        self.to_client: deque[str | bytes] = deque()
        self.sent_text: dict[str, str] = {}
        self.shell: dict[str, _Spoken] = {}
        self.heard: dict[str, str] = {}
        self.cuts_asked = self.cuts_answered = 0
        self.to_client.extend(self.server.ready(session_id="s", model="m"))

    def _known(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.sent_text)))

    def _spoken(self, data: st.DataObject) -> tuple[str, _Spoken]:
        context_id = data.draw(st.sampled_from(sorted(self.shell)))
        return context_id, self.shell[context_id]

    # The client's side.

    @rule()
    def open(self) -> None:
        context_id = f"c{len(self.sent_text)}"
        try:
            self.to_server.append(self.client.open(context_id))
        except VoiceAgentError as error:
            assert error.code is ErrorCode.DRAINING
            return
        self.sent_text[context_id] = self.heard[context_id] = ""

    @precondition(lambda self: self.sent_text)
    @rule(data=st.data(), what=st.sampled_from(["text", "flush", "end", "cancel", "cut"]))
    def say(self, data: st.DataObject, what: str) -> None:
        context_id = self._known(data)
        arguments: dict[str, Any] = {
            "text": {"text": data.draw(st.sampled_from(["", "one ", "zwei ", "三 "]))},
            "cut": {"played_ms": 80},
        }.get(what, {})
        record = self.client.record(context_id)
        is_closed = not record.accepts_text
        try:
            message = getattr(self.client, what)(context_id, **arguments)
        except InvalidRequestError as error:
            assert error.code is ErrorCode.CONTEXT_CLOSED and is_closed
            return
        assert not is_closed or what in ("cancel", "cut")
        self.cuts_asked += what == "cut"
        self.sent_text[context_id] += arguments.get("text", "")
        self.to_server.append(message)

    @precondition(lambda self: self.to_server)
    @rule()
    def server_receives(self) -> None:
        try:
            messages = self.server.receive(self.to_server.popleft())
        except RefusedMessageError as error:
            assert error.code in (
                ErrorCode.TOO_MANY_CONTEXTS,
                ErrorCode.CONTEXT_CLOSED,
                ErrorCode.DRAINING,
            )
            assert error.code is not ErrorCode.TOO_MANY_CONTEXTS or self._is_full()
            self.to_client.extend(self.server.refused(error))
            return
        for message in messages:
            self._act_on(message)

    def _is_full(self) -> bool:
        running = [spoken for spoken in self.shell.values() if not spoken.is_cancelling]
        return len(running) == self.max_contexts

    def _act_on(self, message: Any) -> None:
        match message:
            case ContextOpen(context_id=context_id):
                self.shell[context_id] = _Spoken()
            case ContextText(context_id=context_id, text=text):
                self.shell[context_id].text += text
            case ContextFlush(context_id=context_id, flush_id=flush_id):
                self.shell[context_id].flushes.append(flush_id)
            case ContextCancel(context_id=context_id):
                assert not self.shell[context_id].is_cancelling
                self.shell[context_id].is_cancelling = True
            case ContextCut(context_id=context_id):
                self.to_client.extend(self.server.cut(context_id, Cut("", "", is_partial=False)))
            case _:
                pass

    # The server's side.

    @precondition(lambda self: self.shell)
    @rule(data=st.data(), samples=st.integers(1, MAX_MESSAGE_PCM_BYTES // 2))
    def speak(self, data: st.DataObject, samples: int) -> None:
        context_id, spoken = self._spoken(data)
        if spoken.is_cancelled:
            return
        if not spoken.is_opened:
            spoken.is_opened = True
            self.to_client.extend(send_opened(self.server, context_id))
        words = [
            WordTimestamp(Word(match[0], *match.span()), spoken.samples, None, 1.0)
            for match in list(re.finditer(r"\S+", spoken.text))[spoken.words :]
        ]
        spoken.words += len(words)
        if words:
            self.to_client.extend(self.server.words(context_id, words))
            self.to_client.extend(self.server.words_moved(context_id, words[-1:]))
        self.to_client.extend(self.server.audio(context_id, bytes(2 * samples), spoken.samples))
        spoken.samples += samples
        for flush_id in spoken.flushes:
            flushed = self.server.flushed(context_id, flush_id, spoken.samples // 24)
            self.to_client.extend(flushed)
        spoken.flushes.clear()

    @precondition(lambda self: self.shell)
    @rule(data=st.data(), reason=st.sampled_from(["complete", "error", "limit", "idle"]))
    def finish(self, data: st.DataObject, reason: Any) -> None:
        context_id, spoken = self._spoken(data)
        if spoken.is_cancelled:
            reason = "cancelled"
        if reason == "error":
            self.to_client.extend(self.server.error(EngineError("it failed"), context_id))
        self.to_client.extend(self.server.done(context_id, reason, chars=len(spoken.text)))
        del self.shell[context_id]

    @precondition(lambda self: any(s.is_cancelling for s in self.shell.values()))
    @rule()
    def answer_cancels(self) -> None:
        for context_id, spoken in self.shell.items():
            if spoken.is_cancelling and not spoken.is_cancelled:
                spoken.is_cancelled = True
                cut = Cut(spoken.text, "", is_partial=False)
                self.to_client.extend(self.server.cancelled(context_id, cut, "clock"))

    @precondition(lambda self: len(self.sent_text) > 5)
    @rule()
    def drain(self) -> None:
        self.to_client.extend(self.server.draining(deadline_ms=1_000))

    @precondition(lambda self: self.to_client)
    @rule()
    def client_receives(self) -> None:
        event = self.client.receive(self.to_client.popleft())
        match event:
            case ContextOpened():
                self.heard[event.context_id] += "o"
            case ClientAudio():
                self.heard[event.context_id] += "a"
            case WordsMessage() | WordsMovedMessage():
                self.heard[event.context_id] += "w"
            case FlushedMessage():
                self.heard[event.context_id] += "f"
            case CancelledMessage():
                self.heard[event.context_id] += "c"
                assert self.sent_text[event.context_id].startswith(event.text_spoken)
            case DoneMessage():
                self.heard[event.context_id] += "d"
                self._check_done(event)
            case CutMessage():
                self.cuts_answered += 1
            case _:
                pass

    def _check_done(self, done: DoneMessage) -> None:
        record = self.client.record(done.context_id)
        assert _ORDER.fullmatch(self.heard[done.context_id])
        assert (done.reason == "cancelled") == (record.state is WireState.CANCELLED)
        assert done.audio_ms == record.samples_received // 24
        assert done.chars <= len(self.sent_text[done.context_id])
        assert self.sent_text[done.context_id] == record.text
        for timestamp in record.words:
            word = timestamp.word
            assert record.text[word.char_start : word.char_end] == word.text

    @invariant()
    def the_cap_holds(self) -> None:
        if hasattr(self, "shell"):
            running = [spoken for spoken in self.shell.values() if not spoken.is_cancelling]
            assert len(running) <= self.max_contexts
            assert set(self.server.contexts) == set(self.shell)

    def teardown(self) -> None:
        """When all is delivered and finished, every open had exactly one `done`, last."""
        if not hasattr(self, "shell"):
            return
        while self.to_server:
            self.server_receives()
        self.answer_cancels()
        for context_id, spoken in self.shell.items():
            reason = "cancelled" if spoken.is_cancelled else "complete"
            self.to_client.extend(self.server.done(context_id, reason, chars=len(spoken.text)))
        while self.to_client:
            self.client_receives()
        assert all(_ORDER.fullmatch(heard) for heard in self.heard.values())
        assert self.cuts_answered == self.cuts_asked


TestBackToBack = BackToBack.TestCase
TestBackToBack.settings = settings(
    max_examples=examples(400), stateful_step_count=50, deadline=None
)
