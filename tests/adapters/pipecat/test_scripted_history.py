"""An interrupted turn in Pipecat's history, on a scripted clock: word for word what was heard."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from pipecat.frames.frames import EndFrame, Frame, InterruptionFrame, TTSSpeakFrame

from testbed.scripted_pipecat import HoldUp, Loudspeaker, agent, cut, reply
from testbed.scripted_server import Script, Step
from testbed.scripted_time import ScriptedLoop, run_scripted
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError, ErrorCode, OverloadedError

WORD_MS = 300
WORDS = 20
TEXT = " ".join("w" * WORDS)
HEARD_MS = 20
AHEAD_S = 0.17
"""How long before its playback a server sends a word whose time an aligner finds."""


def heard(played_samples: int) -> int:
    """How many words were heard."""
    played_ms = 1000 * played_samples / SAMPLE_RATE_HZ
    return sum(index * WORD_MS + HEARD_MS <= played_ms for index in range(WORDS))


def audio_steps(rtf: float, step_ms: int, words: int = WORDS) -> list[Step]:
    """Audio that an engine makes at this pace, in messages of this length."""
    count = -(-words * WORD_MS // step_ms)
    samples = step_ms * SAMPLE_RATE_HZ // 1000
    return [Step(index * step_ms / 1000 * rtf, samples=samples) for index in range(count)]


def word_steps(ahead_s: float, known: int = 0, words: int = WORDS) -> list[Step]:
    """Words that are sent just before they play, in real time; the first `known` at once."""
    at_once = tuple(index * WORD_MS for index in range(known))
    steps = [Step(0.0, words_ms=at_once)] if known else []
    for index in range(known, words):
        start_ms = index * WORD_MS
        steps.append(Step(max(0.0, start_ms / 1000 - ahead_s), words_ms=(start_ms,)))
    return steps


def script(*steps: list[Step]) -> Script:
    """All steps in the order of their times."""
    together = sorted((step for some in steps for step in some), key=lambda step: step.at_s)
    return Script(tuple(together), end_s=together[-1].at_s)


@pytest.mark.parametrize("after_s", [0.07, 1.97])
@pytest.mark.parametrize(("rtf", "known"), [(0.0, 0), (0.0, 4), (0.0, WORDS), (0.5, 0)])
def test_words_that_come_behind_their_audio_are_in_the_history(
    rtf: float, known: int, after_s: float
) -> None:
    """However much audio waits to be played in front of them."""
    spoken = script(audio_steps(rtf, 80), word_steps(AHEAD_S, known))
    (committed,), (played_samples,) = cut(reply(TEXT), spoken, after_s)
    assert len(committed.split()) == heard(played_samples) > 0


@pytest.mark.parametrize("after_s", [1.05, 1.08, 1.74])
def test_a_word_of_audio_that_fills_no_chunk_is_not_in_the_history(after_s: float) -> None:
    """A transport that runs dry keeps what is less than a chunk until more comes."""
    spoken = script(audio_steps(1.2, 20), word_steps(AHEAD_S, WORDS))
    (committed,), (played_samples,) = cut(reply(TEXT), spoken, after_s, chunk_ms=100)
    assert len(committed.split()) == heard(played_samples) > 2


def sentence(text: str) -> list[Frame]:
    """An utterance outside of a reply."""
    return [TTSSpeakFrame(text)]


@pytest.mark.parametrize(
    ("after_s", "chunk_ms"), [(0.01, 20), (0.95, 40), (1.45, 40), (1.968, 10), (3.676, 20)]
)
@pytest.mark.parametrize("known", [0, 5])
@pytest.mark.parametrize("said", [(reply, sentence, sentence), (sentence, reply, reply)])
def test_utterances_in_a_row_have_their_own_words(
    said: tuple[Callable[[str], list[Frame]], ...], known: int, after_s: float, chunk_ms: int
) -> None:
    """In the first word of one, in a later one, in its last one, and in the pause between two."""
    few = 5
    spoken = script(audio_steps(0.0, 80, few), word_steps(AHEAD_S, known, few))
    frames = [frame for utterance in said for frame in utterance(" ".join("w" * few))]
    committed, played_samples = cut(frames, spoken, after_s, chunk_ms)
    counts = [min(few, heard(samples)) for samples in played_samples]
    assert [len(message.split()) for message in committed] == [each for each in counts if each]


@pytest.mark.parametrize("catches_up", [False, True])
@pytest.mark.parametrize(
    ("hold_up", "after_s"),
    [
        (HoldUp(0.5, 0.45), 0.95),  # the interruption comes with the processor
        (HoldUp(0.5, 0.45), 1.9),
        (HoldUp(0.21, 0.19), 2.75),
        (HoldUp(1.0, 1.6), 2.6),
        (HoldUp(1.0, 1.6), 3.31),
    ],
)
@pytest.mark.parametrize(("rtf", "known"), [(0.0, WORDS), (0.5, 0)])
def test_other_work_moves_no_word(
    rtf: float, known: int, hold_up: HoldUp, after_s: float, catches_up: bool
) -> None:
    """A word is heard when its chunk plays, whatever the time: transports lose time or hurry."""
    spoken = script(audio_steps(rtf, 80), word_steps(AHEAD_S, known))
    (committed,), (played_samples,) = cut(
        reply(TEXT), spoken, after_s, hold_up=hold_up, catches_up=catches_up
    )
    assert len(committed.split()) == heard(played_samples) > 1


@pytest.mark.parametrize("catches_up", [False, True])
@pytest.mark.parametrize(("hold_up", "after_s"), [(HoldUp(1.2, 0.9), 2.6), (HoldUp(1.6, 0.2), 2.2)])
def test_other_work_at_the_start_of_an_utterance_moves_no_word(
    hold_up: HoldUp, after_s: float, catches_up: bool
) -> None:
    """A transport that hurries reports the start later than it was."""
    few = 5
    spoken = script(audio_steps(0.0, 80, few), word_steps(AHEAD_S, few, few))
    text = " ".join("w" * few)
    committed, played_samples = cut(
        [*reply(text), *reply(text)], spoken, after_s, hold_up=hold_up, catches_up=catches_up
    )
    assert [len(message.split()) for message in committed] == [
        min(few, heard(samples)) for samples in played_samples
    ]


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_reply_after_an_interruption_between_two_chunks_has_its_words(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """The transport plays one more chunk then, and does not report the start of the next reply."""
    hold_ups_s = [0.04]

    async def end_chunk(service: VoiceAgentTTSService) -> None:
        if hold_ups_s:
            cast("ScriptedLoop", asyncio.get_running_loop()).hold_up(hold_ups_s.pop())
            for _ in range(turns):
                await asyncio.sleep(0)

    monkeypatch.setattr(VoiceAgentTTSService, "stop_all_metrics", end_chunk)

    async def run() -> tuple[list[str], list[int]]:
        spoken = script(audio_steps(0.0, 80), word_steps(AHEAD_S, WORDS))
        async with agent(spoken, Loudspeaker(40)) as talk:
            for _ in range(2):
                await talk.say(reply(TEXT))
                await asyncio.sleep(1.0)
                await talk.worker.queue_frame(InterruptionFrame())
                await asyncio.sleep(0.3)
            return talk.messages, talk.loudspeaker.played_samples

    messages, played_samples = run_scripted(run())
    assert [len(message.split()) for message in messages] == [
        heard(each) for each in played_samples
    ]
    assert len(messages) == 2


def test_a_reply_that_is_too_short_to_be_heard_is_a_message_of_its_own() -> None:
    """All its audio is shorter than what a listener needs; the pipeline's end waits no longer."""

    async def run() -> list[str]:
        spoken = script(audio_steps(0.0, 100, 3), word_steps(AHEAD_S, words=3))
        async with agent(spoken, Loudspeaker(40), output_latency_s=0.4) as talk:
            await talk.say(reply("w w w"))
            talk.server.script = script(audio_steps(0.0, 100, 1), word_steps(AHEAD_S, words=1))
            await talk.say(reply("w"))
            await asyncio.sleep(4.0)
            messages = talk.messages
            await talk.worker.queue_frame(EndFrame())
            async with asyncio.timeout(5.0):
                await talk.ended
            return messages

    assert run_scripted(run()) == ["w w w", "w"]


@pytest.mark.parametrize("after_s", [0.3, 1.05, 1.4])
def test_words_that_are_on_their_way_to_the_listener_are_not_heard(after_s: float) -> None:
    """Also those of the last 0.4 s of a reply, of which no more is played."""
    few, latency_s = 5, 0.4

    async def run() -> tuple[list[str], int]:
        spoken = script(audio_steps(0.0, 100, few), word_steps(AHEAD_S, few, few))
        async with agent(spoken, Loudspeaker(40), output_latency_s=latency_s) as talk:
            await talk.say(reply("w w w w w"))
            await asyncio.sleep(after_s)
            await talk.worker.queue_frame(InterruptionFrame())
            await asyncio.sleep(0.5)
            return talk.messages, talk.loudspeaker.played_samples[0]

    messages, played_samples = run_scripted(run())
    count = heard(played_samples - round(latency_s * SAMPLE_RATE_HZ))
    assert [len(message.split()) for message in messages] == [count] * bool(count)


@pytest.mark.parametrize(
    ("loudspeaker", "is_switched", "lost_s"),
    [
        (lambda: Loudspeaker(80), True, 0.0),
        (lambda: Loudspeaker(40, deaf=HoldUp(1.0, 1.2)), False, 1.2),
    ],
    ids=["in a service switcher", "writing fails for a while"],
)
def test_speech_goes_on(
    loudspeaker: Callable[[], Loudspeaker], is_switched: bool, lost_s: float
) -> None:
    """Whatever the length of the chunks, and after audio for which no report comes."""
    after_s = 5.0

    async def run() -> tuple[str, int]:
        spoken = script(audio_steps(0.0, 80), word_steps(AHEAD_S))
        async with agent(spoken, loudspeaker(), is_switched=is_switched) as talk:
            await talk.say(reply(TEXT))
            await asyncio.sleep(after_s)
            await talk.worker.queue_frame(InterruptionFrame())
            await asyncio.sleep(0.5)
            return talk.messages[0], talk.loudspeaker.played_samples[0]

    committed, played_samples = run_scripted(run())
    assert played_samples > (after_s - lost_s - 0.1) * SAMPLE_RATE_HZ
    assert len(committed.split()) == heard(played_samples)


def dies(at_s: float, step: Step | None = None) -> Script:
    """A context whose engine dies, and what it sends before."""
    failure = EngineError("the engine process has ended")
    return Script((step,) if step else (), end_s=at_s, failure=failure)


def restarting(at_s: float, retry_after_ms: int = 1_000) -> Script:
    """A context that waits for an engine, in vain."""
    code = ErrorCode.MODEL_NOT_READY
    failure = OverloadedError("it restarts", code=code, retry_after_ms=retry_after_ms)
    return Script((), end_s=at_s, failure=failure)


@pytest.mark.parametrize(
    "first",
    [
        [dies(0.0), dies(3.0)],
        [dies(0.05), restarting(5.0), dies(2.0)],
        [dies(0.05, Step(0.0, words_ms=(0, 300)))],
        [dies(0.05, Step(0.0, samples=480))] * 3,
        [dies(0.05), restarting(0.0, retry_after_ms=60_000)],
    ],
    ids=["before sound", "on opening", "words alone", "in one word", "asks for too long a wait"],
)
def test_a_reply_whose_engine_dies_is_whole(first: list[Script]) -> None:
    """However often and wherever, within the patience of the listener."""
    few = 3
    spoken = script(audio_steps(0.0, 80, few), word_steps(AHEAD_S, words=few))

    async def run() -> tuple[list[str], int]:
        async with agent(spoken, Loudspeaker(40), first=first) as talk:
            await talk.say(reply(" ".join("w" * few)))
            await asyncio.sleep(2.5)
            return talk.messages, sum(talk.loudspeaker.played_samples)

    messages, played_samples = run_scripted(run())
    assert messages == ["w w w"]
    assert played_samples >= few * WORD_MS * SAMPLE_RATE_HZ // 1000
