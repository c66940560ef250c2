"""The promises of `tts.v1`, whatever a client does: a real server over a real socket.

`Wire` checks each message that arrives: order, offsets, words, flushes and the ends of contexts.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from testbed.examples import examples
from testbed.server_process import ServerProcess
from testbed.wire import ReceivedContext, Wire
from voiceagent_tts.core import SAMPLE_RATE_HZ, Encoding, ms_to_samples, samples_to_ms
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.messages import AudioFormat, CutMessage, ErrorMessage, PongMessage
from voiceagent_tts.text.cut import cut_text

_SNIPPETS = (
    "Hello", " there", ", my friend", ". ", "! ", "?", " 3.5", " example.com ", "\n\n- item\n",
    "**bold** ", "Dr. ", " $45.99", "\U0001f642", " --- ", "  ", "\x00", "\u202e", "é", "你好。",
    "東京タワー", "안녕하세요 ", "Привет, ", "¿Qué tal? ", "l'été", "e\u0301", "x" * 300, "no. 5",
    "A sentence that is long enough to be sent in more than one message of audio, I think. ",
)  # fmt: skip
_KINDS = (
    "open", "open", "text", "text", "flush", "end", "cancel", "cut", "cut", "listen", "listen",
    "open again", "text too late", "flush too late", "flush an old id", "a stranger", "garbage",
)  # fmt: skip
_FORMATS = st.builds(
    AudioFormat,
    encoding=st.sampled_from(get_args(Encoding)),
    sample_rate=st.sampled_from((8000, 16000, 24000, 48000)),
    transport=st.sampled_from(("binary", "base64")),
)
_OPTIONS = st.fixed_dictionaries(
    {
        "audio": st.just(AudioFormat()) | _FORMATS,
        "max_lead_s": st.sampled_from((0, 0, None)),
        "timestamps": st.sampled_from(("word", "word", "none")),
        "language": st.sampled_from((None, "en", "de-DE", "Chinese")),
        "max_buffer_delay_ms": st.sampled_from((0, 500)),
    }
)
_TEXTS = st.lists(st.sampled_from(_SNIPPETS) | st.text(max_size=8), min_size=1, max_size=5)
_ACTS = st.tuples(
    st.sampled_from(_KINDS), st.integers(0, 30), _TEXTS, st.integers(0, 12_000), _OPTIONS
)
Act = tuple[str, int, list[str], int, dict[str, Any]]
_MAX_PACED_CHARS = 60
"""A paced context with more text is cancelled instead of played to its end, to save time."""
_GARBAGE = ("", "{", "null", "[]", "[" * 5000, b"\x00\x01", '{"type": 3}')
_ONE_CONTEXT: list[Act] = [
    ("open", 0, ["Hello", " there", ", my friend", ". ", " $45.99"], 0, {"max_lead_s": 0}),
    ("end", 0, [], 0, {}),
]


@dataclass(frozen=True)
class _Asked:
    """A request to the server, and the expected answer."""

    kind: type
    code: ErrorCode | None = None
    text: str | None = None
    context_id: str | None = None


class Talk:
    """A client that sends anything at any time, and expects the answers in order."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._asked: deque[_Asked] = deque()
        self._checked = len(wire.answers)

    async def act(self, act: Act) -> None:
        """Do one thing, if there is a context for it."""
        kind, which, texts, played_ms, options = act
        wire, contexts = self.wire, list(self.wire.contexts.values())
        open_ones = [each for each in contexts if not each.is_closed]
        closed = [each for each in contexts if each.is_closed]
        match kind:
            case "open" if len(open_ones) < 6:
                received = await wire.open(**options)
                for text in texts:
                    await wire.text(received, text)
            case "text" if open_ones:
                for text in texts:
                    await wire.text(_pick(open_ones, which), text)
            case "flush" if open_ones:
                await wire.flush(_pick(open_ones, which))
            case "end" if open_ones:
                await wire.end(_pick(open_ones, which))
            case "cancel" if contexts:
                await wire.cancel(_pick(contexts, which), played_ms if which % 2 else None)
            case "cut" if contexts:
                await self.ask_for_cut(_pick(contexts, which), played_ms)
            case "listen":
                await self._listen(which)
            case "open again" if contexts:
                await self._misuse("context.open", contexts, which, ErrorCode.CONTEXT_EXISTS)
            case "text too late" if closed:
                await self._misuse("text", closed, which, ErrorCode.CONTEXT_CLOSED, text="late")
            case "flush too late" if closed:
                await self._misuse("flush", closed, which, ErrorCode.CONTEXT_CLOSED, flush_id=10**6)
            case "flush an old id" if flushed := [
                each for each in open_ones if each.record.flushes
            ]:
                flush_id = _pick(flushed, which).record.flushes
                await self._misuse(
                    "flush", flushed, which, ErrorCode.INVALID_PARAM, flush_id=flush_id
                )
            case "a stranger":
                self._asked.append(_Asked(ErrorMessage, ErrorCode.CONTEXT_NOT_FOUND))
                await wire.send_raw({"type": "end", "context_id": "nobody"})
            case "garbage":
                self._asked.append(_Asked(ErrorMessage))
                await wire.send_raw(_GARBAGE[which % len(_GARBAGE)])
            case _:
                pass

    async def ask_for_cut(self, received: ReceivedContext, played_ms: int) -> None:
        """Ask what was heard of a context."""
        self._asked.append(_Asked(CutMessage, text=received.record.text))
        context_id = received.record.context_id
        await self.wire.send_raw(self.wire.connection.cut(context_id, played_ms))

    async def _misuse(
        self, kind: str, among: Sequence[ReceivedContext], which: int, code: ErrorCode, **more: Any
    ) -> None:
        context_id = _pick(among, which).record.context_id
        self._asked.append(_Asked(ErrorMessage, code, context_id=context_id))
        await self.wire.send_raw({"type": kind, "context_id": context_id, **more})

    async def _listen(self, most: int) -> None:
        for _ in range(most):
            try:
                await self.wire.receive(timeout_s=0.005)
            except TimeoutError:
                return

    async def catch_up(self) -> list[Any]:
        """Read until everything is answered; return the answers since the last time."""
        self._asked.append(_Asked(PongMessage))
        await self.wire.send_raw(self.wire.connection.ping())
        await self.wire.until(PongMessage)
        answers, self._checked = self.wire.answers[self._checked :], len(self.wire.answers)
        for answer, asked in zip(answers, self._asked, strict=True):
            assert isinstance(answer, asked.kind), (answer, asked)
            if isinstance(answer, ErrorMessage):
                assert asked.code in (None, answer.code), (answer, asked)
                assert asked.context_id in (None, answer.context_id), (answer, asked)
            if isinstance(answer, CutMessage):
                assert answer.text_spoken + answer.text_remaining == asked.text
        self._asked.clear()
        return answers[:-1]

    async def finish(self) -> None:
        """End or cancel all contexts, read to the end of everything, and check where cuts lie."""
        contexts = list(self.wire.contexts.values())
        for received in contexts:
            if received.is_paced and len(received.record.text) > _MAX_PACED_CHARS:
                await self.wire.cancel(received)
            elif not received.is_closed:
                await self.wire.end(received)
        for received in contexts:
            await self.wire.finish(received)
        await self.catch_up()
        for received in contexts:
            if received.words and received.record.audio.sample_rate == SAMPLE_RATE_HZ:
                await self._check_cuts(received)

    async def _check_cuts(self, received: ReceivedContext) -> None:
        """A cut 30 ms before and behind the start of a word is without it and with it."""
        record = received.record
        is_final = received.done.reason == "complete"
        for word in received.words[-3:]:
            for played_ms in (samples_to_ms(word.start_sample) + away for away in (-30, 30)):
                await self.ask_for_cut(received, max(0, played_ms))
                (answer,) = await self.catch_up()
                played = min(ms_to_samples(max(0, played_ms)), record.samples_received)
                local = cut_text(record.text, record.words, played, is_final=is_final)
                # Word ends, and so the end of the text, are known here to the millisecond only.
                assert answer.text_spoken.rstrip() == local.text_spoken.rstrip()


def _pick(contexts: Sequence[ReceivedContext], which: int) -> ReceivedContext:
    return contexts[which % len(contexts)]


@given(acts=st.lists(_ACTS, min_size=5, max_size=40), hangs_up=st.booleans())
@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(acts=_ONE_CONTEXT, hangs_up=False)
def test_pain_15_any_order_of_messages_keeps_the_promises(
    served: ServerProcess, acts: list[Act], *, hangs_up: bool
) -> None:
    """Whatever messages a client sends, in any order, every context follows `tts.v1`."""

    async def talk() -> None:
        wire = await Wire.connect(served.websocket_url)
        client = Talk(wire)
        try:
            for act in acts:
                await client.act(act)
            if not hangs_up:
                await client.finish()
        finally:
            wire.reset()
            await wire.close()

    asyncio.run(talk())
    served.wait_until_idle()
