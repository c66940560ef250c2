"""What a Pipecat turn survives, and what its end costs when it does not, on a scripted clock."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    ManuallySwitchServiceFrame,
    TTSSpeakFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.utils.errors import ErrorCategory

from testbed.pipecat_conversation import (
    Act,
    Conversation,
    Understudy,
    failing_over,
    history,
    lose_connection,
    reply,
    scripted,
    talking,
)
from testbed.scripted_server import LOSES_ITS_TEXT, Script, Step, whole
from testbed.scripted_time import run_scripted
from testbed.servers import close_sockets
from testbed.waiting import until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.adapters.pipecat.output import Output
from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.adapters.pipecat.speaking import PipecatReply
from voiceagent_tts.adapters.pipecat.turn import PipecatTurn, SpokenWord
from voiceagent_tts.adapters.turn import TurnWord
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.protocol.messages import DoneMessage
from voiceagent_tts.server.serve import RunningServer

TEXT = "a b c d e f"
HALF = whole(3)
"""The first three words, or the other ones."""
BROKEN_OFF = replace(HALF, end_s=600.0)
"""A context of which no more comes."""
SILENT = Script((), end_s=600.0)
WHOLE = whole(6, end_s=0.1)


def dies(at_s: float, step: Step | None = None) -> Script:
    """A context whose engine dies, and what it sends before."""
    failure = EngineError("the engine process has ended")
    return Script((step,) if step else (), end_s=at_s, failure=failure)


def restarting(at_s: float, retry_after_ms: int = 1_000) -> Script:
    """A context that waits for an engine, in vain."""
    code = ErrorCode.MODEL_NOT_READY
    failure = OverloadedError("it restarts", code=code, retry_after_ms=retry_after_ms)
    return Script((), end_s=at_s, failure=failure)


def begin(*tokens: str) -> list[Frame]:
    """The beginning of a reply."""
    return [LLMFullResponseStartFrame(), *map(LLMTextFrame, tokens)]


def end(*tokens: str) -> list[Frame]:
    """The end of a reply."""
    return [*map(LLMTextFrame, tokens), LLMFullResponseEndFrame()]


async def go_down(talk: Conversation) -> None:
    """The line to the server breaks."""
    talk.line.go_down()


async def come_up(talk: Conversation) -> None:
    """It is repaired."""
    talk.line.come_up()


async def forget(talk: Conversation) -> None:
    """A router drops the connection without a sign."""
    talk.line.forget()


def pushing(frames: list[Frame]) -> Act:
    """Lets `frames` enter, and waits for no sound."""
    return lambda talk: talk.push(*frames)


# The turn resumes.

IN_ONE_WORD = [dies(0.05, Step(0.0, samples=480))] * 3
DEATHS = {
    "before sound": [dies(0.0), dies(3.0)],
    "on opening": [dies(0.05), restarting(5.0), dies(2.0)],
    "words alone": [dies(0.05, Step(0.0, words_ms=(0, 300)))],
    "in one word": IN_ONE_WORD,
    "in two words": [*IN_ONE_WORD, dies(0.05, Step(0.0, samples=7_200, words_ms=(0,))),
                     *IN_ONE_WORD],
    "asks for a long wait": [dies(0.05), restarting(0.0, retry_after_ms=60_000)],
}  # fmt: skip


@pytest.mark.parametrize("first", DEATHS.values(), ids=DEATHS)
def test_a_reply_whose_engine_dies_is_whole(first: list[Script]) -> None:
    """However often and wherever, within the patience of the listener."""
    outcome = history(WHOLE, (0.0, reply(TEXT)), (5.0, []), first=first)
    assert outcome.messages == [TEXT]
    assert sum(outcome.played_samples) >= 6 * 7_200


REST = "d e f"
LOSSES: dict[str, tuple[list[tuple[float, Act]], dict[str, Any], str]] = {
    "before sound": ([(0.0, pushing(reply(TEXT))), (0.3, lose_connection)], {"first": [SILENT]},
                     TEXT),
    "in mid-turn": ([(0.0, reply(TEXT)), (0.5, lose_connection)], {}, REST),
    "without a sign": ([(0.0, reply(TEXT)), (0.5, forget)], {"response_timeout_s": 2.0}, REST),
    "for long": ([(0.0, reply(TEXT)), (0.5, go_down), (6.0, come_up)], {}, REST),
    "at the start": ([(0.0, pushing(reply(TEXT))), (1.5, come_up)],
                     {"is_down": True, "reconnect_attempts": 0, "first": []}, TEXT),
    "while the model writes": ([(0.0, begin("a b c, ")), (0.5, go_down),
                                (0.3, pushing(end(REST))), (0.5, come_up)], {}, REST),
    "before any text": ([(0.0, go_down), (0.3, pushing(reply(TEXT))), (0.5, come_up)],
                        {"first": []}, TEXT),
    "while the model thinks": ([(0.0, pushing(begin())), (0.1, go_down),
                                (15.0, pushing(end(TEXT))), (5.0, come_up)], {"first": []}, TEXT),
    "while the model pauses": ([(0.0, begin("a b c, ")), (1.5, go_down),
                                (5.0, pushing(end(REST))), (8.0, come_up)], {}, REST),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_a_turn_resumes_after_a_loss(name: str) -> None:
    """Each word is spoken again unless it was heard, and committed once, and no turn fails."""
    acts, options, rest = LOSSES[name]
    acts = [*acts, (20.0, pushing([]))]
    outcome = history(WHOLE, *acts, **{"first": [BROKEN_OFF]} | options)
    assert [message.replace(",", "") for message in outcome.messages] == [TEXT]
    assert all("no connection to " in error for error in outcome.errors)
    assert outcome.server.texts[-1].strip() == rest


@pytest.mark.parametrize("status", [400, 404, 422, 426, 502])
@pytest.mark.parametrize("is_down", [True, False], ids=["at the start", "in mid-turn"])
def test_another_program_on_the_port_of_a_restarting_server_mutes_no_bot(
    status: int, is_down: bool
) -> None:
    """The service reports what it answers, once, and connects when the server is back."""

    async def take_over(talk: Conversation) -> None:
        talk.line.go_down(status)

    if is_down:
        options = {"is_down": True, "reconnect_attempts": 0, "first": []}
        acts = [(0.0, take_over), (0.0, pushing(reply(TEXT))), (3.0, come_up)]
    else:
        options = {"first": [BROKEN_OFF]}
        acts = [(0.0, reply(TEXT)), (0.3, take_over), (2.5, come_up)]
    outcome = history(WHOLE, *acts, (10.0, pushing([])), **options)  # type: ignore[arg-type]
    assert outcome.messages == [TEXT]
    assert sum(f"HTTP {status}" in error for error in outcome.errors) == 1


@pytest.mark.parametrize(
    ("first", "response_timeout_s"),
    [
        (replace(whole(3, end_s=0.9), closed_s=0.3), 10.0),
        (replace(whole(3, end_s=0.2), idles=True), 3.0),
    ],
    ids=["at its limit", "idle"],
)
def test_a_reply_goes_on_past_a_context_that_has_ended(
    first: Script, response_timeout_s: float
) -> None:
    """One at the limit of its audio refuses text; one that waits for text for too long ends."""
    outcome = history(
        HALF,
        (0.0, begin("a b c. ")),
        (0.4, end("d ", "e f.")),
        (4.0, []),
        first=[first],
        response_timeout_s=response_timeout_s,
    )
    assert outcome.messages == ["a b c. d e f."] and not outcome.errors
    assert outcome.server.texts[-1].split() == ["d", "e", "f."]


def test_text_that_comes_after_the_limit_of_a_context_is_the_same_utterance() -> None:
    """All text so far was spoken when the context ended, and the LLM had not written the rest."""
    first = replace(whole(2, end_s=0.3), closed_s=0.2)
    acts = (0.0, begin("a b. ")), (1.0, end("c d.")), (4.0, [])
    outcome = history(HALF, *acts, first=[first])
    assert outcome.messages == ["a b. c d."] and not outcome.errors
    assert len(outcome.server.texts) == 2 and len(outcome.played_samples) == 1


@pytest.mark.parametrize("is_heard", [True, False])
def test_text_that_arrives_while_a_context_ends_is_spoken(
    monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    """The server has ended it, and a busy program has not read that, or is about to go on."""
    late, name = [end("d e f.")], "_add_words" if is_heard else "_receive_event"
    method = getattr(PipecatReply, name)

    async def run() -> list[str]:
        async with scripted(HALF, first=[replace(whole(3, end_s=0.3), idles=True)]) as talk:

            async def delayed(spoken: PipecatReply, item: Any) -> None:
                has_ended = isinstance(item, DoneMessage) or (
                    is_heard and spoken.turn.record is None
                )
                if has_ended and late:
                    await talk.push(*late.pop())
                    await asyncio.sleep(0.05)
                await method(spoken, item)

            monkeypatch.setattr(PipecatReply, name, delayed)
            await talk.say(begin("a b c. "))
            await asyncio.sleep(5.0)
            assert [text.split() for text in talk.server.texts] == [["a", "b", "c."],
                                                                    ["d", "e", "f."]]  # fmt: skip
            return talk.messages

    assert " ".join(run_scripted(run())) == "a b c. d e f."


@pytest.mark.parametrize("mode", ["sentence", "token"])
@pytest.mark.parametrize("lost", [[], [(0.3, go_down)]], ids=["in mid-turn", "in an outage"])
def test_a_new_voice_in_a_reply_loses_no_word(lost: list[tuple[float, Act]], mode: str) -> None:
    """The next clause has it, without a reconnect; the text before it keeps the old one."""
    delta = TTSUpdateSettingsFrame(delta=VoiceAgentTTSService.Settings(voice="nova"))
    acts = (0.0, begin("a b c. ")), *lost, (0.1, pushing([delta, *end("d e f.")])), (0.3, come_up)
    options: dict[str, Any] = {"voice": "ash", "text_aggregation_mode": mode}
    outcome = history(whole(3, end_s=1.2), *acts, (15.0, []), **options)
    assert outcome.messages == ["a b c. d e f."]
    said = [(each.voice, text.strip()) for each, text in
            zip(outcome.server.opened, outcome.server.texts, strict=True)]  # fmt: skip
    assert said[0] == ("ash", "a b c.") and said[-1] == ("nova", "d e f.")
    assert outcome.sockets == 1 + len(lost)


def test_what_was_heard_after_a_failure_is_committed() -> None:
    """Words of the resuming context are timed by the audio of the whole turn."""
    acts = (0.0, reply(TEXT)), (0.5, lose_connection), (0.8, [InterruptionFrame()])
    outcome = history(HALF, *acts, first=[BROKEN_OFF])
    assert 1.22 < outcome.played_samples[0] / SAMPLE_RATE_HZ < 1.52
    assert outcome.messages == ["a b c d e"]


def test_an_interruption_during_an_outage_ends_the_turn() -> None:
    """An interrupted turn is not spoken or committed when the server is back."""
    acts = (0.0, reply(TEXT)), (0.5, go_down), (0.3, [InterruptionFrame()]), (0.5, come_up)
    outcome = history(HALF, *acts, (1.0, reply("x y z")), (3.0, []), first=[BROKEN_OFF])
    assert outcome.messages == ["a b c", "x y z"]
    assert outcome.server.texts == [TEXT, "x y z"]


async def test_a_real_server_that_is_lost_in_mid_turn(server: RunningServer) -> None:
    """The turn goes on where it broke off, and each word is heard and committed once."""
    text = "One, two, three, four, five. Six, seven, eight, nine, ten."
    service = VoiceAgentTTSService(url=server.websocket_url, language="en", max_lead_s=0.5)
    async with talking(service) as talk:
        whole_s: list[float] = []
        for is_lost in (False, True):
            await talk.push(*reply(text))
            await talk.played(1.2)
            if is_lost:
                close_sockets(server)
            assert await talk.spoken() == text
            await talk.loudspeaker.is_silent.wait()
            whole_s.append(talk.loudspeaker.played_samples[-1] / SAMPLE_RATE_HZ)
            talk.loudspeaker.played_samples.clear()
        assert not talk.errors
    assert abs(whole_s[1] - whole_s[0]) < 0.8  # one word is started again


# The turn fails, and no other one.

UNKNOWN_VOICE = InvalidRequestError("there is no such voice", code=ErrorCode.INVALID_VOICE)
FAILURES: dict[str, tuple[list[Script], list[tuple[float, Act]], list[str], ErrorCode, Any]] = {
    "a bad voice": ([Script((), end_s=0.0, failure=UNKNOWN_VOICE)], [], [],
                    ErrorCode.INVALID_VOICE, ErrorCategory.UNKNOWN),
    "dies at one word": ([*IN_ONE_WORD, *IN_ONE_WORD[:1]], [], [],
                         ErrorCode.ENGINE_ERROR, ErrorCategory.SERVER),
    "no word up to the limit": ([replace(IN_ONE_WORD[0], failure=None, closed_s=0.0)] * 4, [], [],
                                ErrorCode.ENGINE_ERROR, ErrorCategory.SERVER),
    "text lost": ([LOSES_ITS_TEXT] * 2, [], [], ErrorCode.TEXT_LOST, ErrorCategory.SERVER),
    "silent": ([BROKEN_OFF, SILENT], [], ["a b c"],
               ErrorCode.ENGINE_ERROR, ErrorCategory.SERVER),
    "an outage": ([BROKEN_OFF], [(0.5, go_down), (15.0, come_up)], ["a b c"],
                  ErrorCode.CONNECTION_LOST, ErrorCategory.CONNECTIVITY),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_turn_that_fails_has_one_error_and_mutes_no_other(name: str) -> None:
    """What was heard of it is committed, and nothing else."""
    first, acts, left, code, category = FAILURES[name]

    async def run() -> tuple[list[str], list[Any]]:
        async with scripted(HALF, first=first, reconnect_attempts=2) as talk:
            await talk.push(*reply(TEXT))
            for wait_s, act in acts or [(60.0, come_up)]:
                await asyncio.sleep(wait_s)
                await act(talk)  # type: ignore[operator]
            await talk.push(*reply("x y z"))
            await asyncio.sleep(5.0)
            return talk.messages, talk.errors

    messages, errors = run_scripted(run())
    assert messages == [*left, "x y z"]
    named = [(each.error.partition(":")[0], each.category) for each in errors]
    assert [each for each in named if each[0] in set(ErrorCode)] == [(code, category)]
    assert not any("no audio" in each.error for each in errors)  # Pipecat's own report


def test_a_silent_server_is_noticed_while_the_model_writes() -> None:
    """Text that goes out is no answer, and does not put the end of the server's time off."""
    tokens = [(0.02, pushing([LLMTextFrame("c d. ")]))] * 100
    acts = (0.0, pushing(begin("a b. "))), *tokens
    outcome = history(SILENT, *acts, response_timeout_s=0.3)
    assert outcome.errors == ["engine_error: no answer from the server for 1 s"]


def test_connections_that_break_soon_do_not_mute_the_bot() -> None:
    """Pipecat gives up after three short connections, unless the server was ready on them."""
    acts = (0.1, lose_connection), *[(0.5, lose_connection)] * 4, (0.5, reply(TEXT)), (3.0, [])
    outcome = history(WHOLE, *acts)
    assert (outcome.messages, outcome.errors, outcome.sockets) == ([TEXT], [], 6)


async def test_a_refused_key_is_told_after_another_refusal() -> None:
    """It is permanent; one that is refused again, when the service was given a chance, is news."""
    statuses = ["503 Service Unavailable"]

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status = statuses.pop() if statuses else "401 Unauthorized"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        tts = VoiceAgentTTSService(url=f"ws://127.0.0.1:{port}")
        async with talking(tts) as talk:
            for told in (2, 3):
                await until(lambda count=told: len(talk.errors) == count, "it is told")
                assert (
                    "HTTP 401: expected a valid key; set VOICEAGENT_TTS_API_KEY"
                    in talk.errors[-1].error
                )
                assert not tts.is_usable
                await tts.set_usable(True)
                await talk.push(*reply("Yes."))
    assert "HTTP 503" in talk.errors[0].error


@pytest.mark.parametrize(
    ("scheme", "advice"), [("ws", "is another program, or a proxy"), ("wss", "begins with ws://")]
)
async def test_another_program_at_the_address_is_told(scheme: str, advice: str) -> None:
    """What helps depends on the address: this one has no path, and a scheme of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)  # all, or the system resets the connection
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with talking(VoiceAgentTTSService(url=f"{scheme}://127.0.0.1:{port}")) as talk:
            await until(lambda: len(talk.errors) == 1, "it is told")
            assert advice in talk.errors[0].error


def failing(function: Callable[..., Any], call: int) -> Callable[..., Any]:
    """`function`, whose call of this number fails."""
    calls = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise RuntimeError("what is spoken")
        return function(*args, **options)

    return counted


@pytest.mark.parametrize(
    ("owner", "name", "call", "where"),
    [
        (Output, "pop_due", 8, "let_frames_leave"),
        (Playout, "chunk_ended", 2, "receive_report"),
        (PipecatTurn, "note_answer", 2, "a turn"),
        (PipecatTurn, "silent_s", 2, "a turn"),
        (PipecatTurn, "open_context", 2, "a turn"),
    ],
)
def test_an_unexpected_error_costs_one_turn_at_most(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: int, where: str
) -> None:
    """The next reply is in the history, and a silent server is noticed after that."""
    monkeypatch.setattr(owner, name, failing(getattr(owner, name), call))
    first = [dies(0.1)] if name == "open_context" else [WHOLE]
    acts = (0.0, pushing(reply("a b c"))), (3.0, reply("d e f")), (3.0, [])
    outcome = history(SILENT, *acts, (0.0, reply("g h i")), (5.0, []),
                      first=[*first, WHOLE], response_timeout_s=1.0)  # fmt: skip
    assert outcome.errors[0].endswith(f"unexpected RuntimeError in {where}")
    assert outcome.messages[-1] == "d e f"
    assert "no answer from the server" in outcome.errors[-1]


def test_a_turn_ends_even_if_its_failure_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends it cannot add its words either; that is told once, and the next reply is heard."""
    commit = PipecatTurn.commit

    def fail_at_first(turn: PipecatTurn, words: list[TurnWord]) -> list[SpokenWord]:
        if turn.text.startswith("a"):
            raise RuntimeError("what is spoken")
        return commit(turn, words)

    monkeypatch.setattr(PipecatTurn, "commit", fail_at_first)
    acts = (0.0, pushing(reply("a b c"))), (3.0, reply("d e f")), (3.0, [])
    outcome = history(WHOLE, *acts)
    assert [each.partition("unexpected ")[2] for each in outcome.errors] == [
        "RuntimeError in a turn"
    ]
    assert outcome.messages[-1] == "d e f"


# Another service takes over.

FAILOVER_S = 1.0
"""Silence after which it does."""
ATTEMPT_S = 0.25
"""Time between two attempts to connect."""


@pytest.mark.parametrize(
    ("script", "down_after_s", "least_s", "most_s"),
    [
        (BROKEN_OFF, 0.0, FAILOVER_S, FAILOVER_S + 2 * ATTEMPT_S),
        (BROKEN_OFF, 0.3, FAILOVER_S + 0.6, FAILOVER_S + 0.6 + 2 * ATTEMPT_S),
        (Script((), end_s=0.0, failure=UNKNOWN_VOICE), None, 0.0, ATTEMPT_S),
    ],
    ids=["out of reach", "lost in a reply", "a voice that it has not"],
)
def test_another_service_takes_over_when_the_listener_has_waited(
    script: Script, down_after_s: float | None, least_s: float, most_s: float
) -> None:
    """A second behind the audio that is left; at once where no attempt would help.

    Active again, the service begins a new reply, whose end it gets.
    """
    second = Understudy()

    async def run() -> float:
        loop = asyncio.get_running_loop()
        options = {"around": failing_over(second), "is_down": down_after_s == 0.0}
        async with scripted(script, **options) as talk:  # type: ignore[arg-type]
            await talk.push(*begin(f"{TEXT}. "))
            if down_after_s:
                await talk.loudspeaker.begun()
                await asyncio.sleep(down_after_s)
                talk.line.go_down()
            left_at_s = loop.time()
            async with asyncio.timeout(20.0):
                while talk.service.is_usable:
                    await asyncio.sleep(0.01)
            silent_s = loop.time() - left_at_s
            await talk.push(*end(), *reply("x y z"))
            await asyncio.sleep(1.0)
            assert second.said == ["x y z"]
            talk.line.come_up()
            talk.server.script = HALF
            delta = VoiceAgentTTSService.Settings(voice="nova")
            await talk.push(TTSUpdateSettingsFrame(delta=delta, service=talk.service))
            await asyncio.sleep(1.0)
            assert talk.service.is_usable
            await talk.push(ManuallySwitchServiceFrame(service=talk.service), *reply("d e f"))
            await asyncio.sleep(3.0)
            assert talk.server.texts[-1] == "d e f" and talk.messages[-1].endswith("d e f")
            return silent_s

    assert least_s - 0.01 <= run_scripted(run()) <= most_s


# A server that drains, and the log.


def test_a_draining_server_ends_what_it_speaks() -> None:
    """The service is on the next server meanwhile, and speaks there behind the last reply."""
    slow = Script((*HALF.steps, Step(1.0, samples=21_600, words_ms=(900, 1_200, 1_500))), end_s=1.2)

    async def drain(talk: Conversation) -> None:
        await talk.server.drain()

    async def check(talk: Conversation) -> None:
        assert talk.line.accepted == 2 and talk.server.texts == [TEXT]

    acts = (0.0, reply(TEXT)), (0.3, drain), (0.4, check), (0.0, pushing([TTSSpeakFrame("x y z")]))
    outcome = history(HALF, *acts, (4.0, []), first=[slow])
    assert (outcome.messages, outcome.errors) == ([TEXT, "x y z"], [])
    assert outcome.server.texts == [TEXT, "x y z"]


@pytest.mark.parametrize("has_other", [False, True])
def test_a_drain_that_outlasts_all_attempts_cuts_nothing_off(has_other: bool) -> None:
    """A reply is finished there though its LLM pauses, and spoken on if the server closes first."""
    second = Understudy()

    async def run() -> None:
        options: dict[str, Any] = {"around": failing_over(second)} if has_other else {}
        first = [replace(HALF, end_s=600.0)]
        async with scripted(HALF, first=first, reconnect_attempts=1, **options) as talk:
            await talk.say(begin("a b c. "))
            talk.line.refuse()
            await talk.server.drain()
            await asyncio.sleep(2.0)
            await talk.push(TTSSpeakFrame("g h i"))
            await asyncio.sleep(3.0)
            await talk.push(*end("d e f."))
            await lose_connection(talk)
            talk.line.come_up()
            await asyncio.sleep(6.0)
            assert talk.messages == ["a b c. d e f. g h i"] and talk.service.is_usable
            assert not second.said

    run_scripted(run())


def test_the_log_has_lines_where_something_changes(logged: list[str]) -> None:
    """Who left the server and why, once; and few of a long outage, whose attempts become rare."""

    async def drain(talk: Conversation) -> None:
        await talk.server.drain()

    def lines(*acts: tuple[float, Act]) -> list[str]:
        logged.clear()
        history(WHOLE, *acts)
        return [line.partition(": ")[2] for line in logged]

    assert lines((0.0, reply(TEXT)), (3.0, [])) == []
    assert lines((0.1, drain), (1.0, come_up)) == ["left the server: it drains"]
    (lost,) = lines((0.1, lose_connection), (1.0, come_up))
    assert lost.startswith("left the server: ") and "1000" in lost
    assert len(lines((0.0, reply(TEXT)), (0.5, go_down), (50.0, come_up))) <= 40
