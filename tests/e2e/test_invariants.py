"""The promises of `tts.v1`, whatever a client does: a real server over a real socket."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import get_args

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from testbed.examples import examples
from testbed.server_process import ServerProcess
from testbed.wire import ReceivedContext, Wire
from voiceagent_tts.core import SAMPLE_RATE_HZ, Encoding, ms_to_samples
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.messages import AudioFormat, CutMessage, ErrorMessage, PongMessage
from voiceagent_tts.text.cut import cut_text

_SNIPPETS = (
    "Hello", " there", ", my friend", ". ", "! ", "?", " 3.5", " example.com ", "\n\n- item\n",
    "**bold** ", "Dr. ", " $45.99", "\U0001f642", " --- ", "  ", "\x00", "\u202e", "é", "你好。",
    "東京タワー", "안녕하세요 ", "Привет, ", "¿Qué tal? ", "l'été", "e\u0301", "x" * 300, "no. 5",
    "A sentence that is long enough to be sent in more than one message of audio, I think. ",
)  # fmt: skip

_texts = st.sampled_from(_SNIPPETS) | st.text(max_size=8)
_formats = st.builds(
    AudioFormat,
    encoding=st.sampled_from(get_args(Encoding)),
    sample_rate=st.sampled_from((8000, 16000, 24000, 48000)),
    transport=st.sampled_from(("binary", "base64")),
)
_which = st.integers(0, 30)
_played = st.integers(0, 12_000)

_MAX_PACED_CHARS = 60
"""A paced context with more text is cancelled instead of played to its end, to save time."""


@dataclass(frozen=True)
class _Asked:
    """A request to the server, and the expected answer."""

    kind: type
    code: ErrorCode | None = None
    received: ReceivedContext | None = None
    text: str = ""
    played_ms: int = 0
    is_over: bool = False


class Talk(RuleBasedStateMachine):
    """A client that sends anything at any time, on one socket after the other."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self._server = server
        self._runner = asyncio.Runner()
        self._connect()

    def _connect(self) -> None:
        self._wire = self._runner.run(Wire.connect(self._server.websocket_url))
        self._asked: deque[_Asked] = deque()
        self._checked_answers = len(self._wire.answers)

    @property
    def _contexts(self) -> list[ReceivedContext]:
        return list(self._wire.contexts.values())

    @property
    def _writable(self) -> list[ReceivedContext]:
        return [received for received in self._contexts if not received.is_closed]

    @property
    def _closed(self) -> list[ReceivedContext]:
        return [received for received in self._contexts if received.is_closed]

    # Legal messages

    @precondition(lambda self: len(self._writable) < 6)
    @rule(
        texts=st.lists(_texts, max_size=5),
        audio=st.just(AudioFormat()) | _formats,
        max_lead_s=st.sampled_from((0, 0, None)),
        timestamps=st.sampled_from(("word", "word", "none")),
        language=st.sampled_from((None, "en", "de-DE", "Chinese")),
        max_buffer_delay_ms=st.sampled_from((0, 500)),
    )
    def open(self, texts: list[str], **options) -> None:
        received = self._runner.run(self._wire.open(**options))
        self._speak(received, texts)

    @precondition(lambda self: self._writable)
    @rule(which=_which, texts=st.lists(_texts, min_size=1, max_size=5))
    def text(self, which: int, texts: list[str]) -> None:
        self._speak(_pick(self._writable, which), texts)

    @precondition(lambda self: self._writable)
    @rule(which=_which)
    def flush(self, which: int) -> None:
        self._runner.run(self._wire.flush(_pick(self._writable, which)))

    @precondition(lambda self: self._writable)
    @rule(which=_which)
    def end(self, which: int) -> None:
        self._runner.run(self._wire.end(_pick(self._writable, which)))

    @precondition(lambda self: self._contexts)
    @rule(which=_which, played_ms=st.none() | _played)
    def cancel(self, which: int, played_ms: int | None) -> None:
        self._runner.run(self._wire.cancel(_pick(self._contexts, which), played_ms))

    @precondition(lambda self: self._contexts)
    @rule(which=_which, played_ms=_played)
    def cut(self, which: int, played_ms: int) -> None:
        received = _pick(self._contexts, which)
        record = received.record
        is_over = record.done is not None
        self._ask(_Asked(CutMessage, None, received, record.text, played_ms, is_over))
        message = self._wire.connection.cut(record.context_id, played_ms)
        self._runner.run(self._wire.send_raw(message))

    @rule(most=st.integers(1, 40))
    def listen(self, most: int) -> None:
        self._runner.run(self._listen(most))

    @precondition(lambda self: any(not received.is_paced for received in self._closed))
    @rule(which=_which)
    def hear_out(self, which: int) -> None:
        unpaced = [received for received in self._closed if not received.is_paced]
        self._runner.run(self._wire.finish(_pick(unpaced, which)))

    @rule()
    def catch_up(self) -> None:
        self._ask(_Asked(PongMessage))
        self._runner.run(self._catch_up())
        assert not self._asked

    @precondition(lambda self: len(self._contexts) > 2)
    @rule(is_reset=st.booleans())
    def disconnect(self, is_reset: bool) -> None:
        if is_reset:
            self._wire.reset()
        self._runner.run(self._wire.close())
        self._connect()

    # Illegal messages

    @precondition(lambda self: self._contexts)
    @rule(which=_which)
    def open_again(self, which: int) -> None:
        self._misuse({"type": "context.open"}, which, ErrorCode.CONTEXT_EXISTS, self._contexts)

    @precondition(lambda self: self._closed)
    @rule(which=_which, text=st.sampled_from(("late", "")))
    def text_too_late(self, which: int, text: str) -> None:
        message = {"type": "text", "text": text}
        self._misuse(message, which, ErrorCode.CONTEXT_CLOSED, self._closed)

    @precondition(lambda self: self._closed)
    @rule(which=_which)
    def flush_too_late(self, which: int) -> None:
        message = {"type": "flush", "flush_id": 10**6}
        self._misuse(message, which, ErrorCode.CONTEXT_CLOSED, self._closed)

    @precondition(lambda self: self._writable)
    @rule(which=_which)
    def flush_with_an_old_id(self, which: int) -> None:
        received = _pick(self._writable, which)
        if received.record.flushes:
            message = {"type": "flush", "flush_id": received.record.flushes}
            self._misuse(message, which, ErrorCode.INVALID_PARAM, self._writable)

    @rule(kind=st.sampled_from(("cut", "cancel", "end", "flush")))
    def name_a_stranger(self, kind: str) -> None:
        fields = {"cut": {"played_ms": 0}, "flush": {"flush_id": 1}}.get(kind, {})
        self._ask(_Asked(ErrorMessage, ErrorCode.CONTEXT_NOT_FOUND))
        message = {"type": kind, "context_id": "nobody", **fields}
        self._runner.run(self._wire.send_raw(message))

    @rule(data=st.sampled_from(("", "{", "null", "[]", "[" * 5000, b"\x00\x01", '{"type": 3}')))
    def send_garbage(self, data: str | bytes) -> None:
        self._ask(_Asked(ErrorMessage))
        self._runner.run(self._wire.send_raw(data))

    def teardown(self) -> None:
        try:
            self._runner.run(self._finish())
        except BaseException:
            self._wire.reset()
            self._runner.run(self._wire.close())
            raise
        finally:
            self._runner.close()
        self._server.wait_until_idle()

    # Shared steps

    def _speak(self, received: ReceivedContext, texts: list[str]) -> None:
        for text in texts:
            self._runner.run(self._wire.text(received, text))

    def _misuse(
        self, message: dict, which: int, code: ErrorCode, among: list[ReceivedContext]
    ) -> None:
        received = _pick(among, which)
        self._ask(_Asked(ErrorMessage, code, received))
        message = {**message, "context_id": received.record.context_id}
        self._runner.run(self._wire.send_raw(message))

    def _ask(self, asked: _Asked) -> None:
        self._asked.append(asked)

    async def _listen(self, most: int) -> None:
        for _ in range(most):
            try:
                await self._wire.receive(timeout_s=0.005)
            except TimeoutError:
                return
            self._check_answers()

    async def _catch_up(self) -> None:
        await self._wire.send_raw(self._wire.connection.ping())
        await self._wire.until(PongMessage)
        self._check_answers()

    async def _finish(self) -> None:
        """End or cancel all contexts and read to the end of everything."""
        for received in self._contexts:
            if received.is_paced and len(received.record.text) > _MAX_PACED_CHARS:
                await self._wire.cancel(received)
            elif not received.is_closed:
                await self._wire.end(received)
        for received in self._contexts:
            await self._wire.finish(received)
        self._ask(_Asked(PongMessage))
        await self._catch_up()
        assert not self._asked
        await self._wire.close()

    def _check_answers(self) -> None:
        """Check that answers arrive in the order of the requests."""
        for answer in self._wire.answers[self._checked_answers :]:
            asked = self._asked.popleft()
            assert isinstance(answer, asked.kind), (answer, asked)
            if isinstance(answer, ErrorMessage):
                assert asked.code in (None, answer.code), (answer, asked)
                assert (
                    asked.received is None or answer.context_id == asked.received.record.context_id
                )
            if isinstance(answer, CutMessage):
                _check_cut(answer, asked)
        self._checked_answers = len(self._wire.answers)


def _pick(contexts: list[ReceivedContext], which: int) -> ReceivedContext:
    return contexts[which % len(contexts)]


def _check_cut(answer: CutMessage, asked: _Asked) -> None:
    assert answer.text_spoken + answer.text_remaining == asked.text
    assert asked.received is not None
    record = asked.received.record
    has_words = asked.received.timestamps == "word"
    if asked.is_over and has_words and record.audio.sample_rate == SAMPLE_RATE_HZ:
        assert record.done is not None
        played = min(ms_to_samples(asked.played_ms), record.samples_received)
        is_final = record.done.reason == "complete"
        local = cut_text(record.text, record.words, played, is_final=is_final)
        # Word ends, and so the end of the text, are known here to the millisecond only.
        assert answer.text_spoken.rstrip() == local.text_spoken.rstrip()


def test_any_order_of_messages_keeps_the_promises(served: ServerProcess) -> None:
    """Whatever messages a client sends, in any order, every context follows `tts.v1`."""
    run_state_machine_as_test(
        lambda: Talk(served),
        settings=settings(
            max_examples=examples(100),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
