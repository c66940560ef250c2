"""An interrupted turn in Pipecat's history, on a scripted clock: word for word what was heard."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

import pytest
from pipecat.frames.frames import (
    AggregatedTextFrame,
    EndFrame,
    Frame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMarkerFrame,
    LLMTextFrame,
    TTSSpeakFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator

from testbed.scripted_pipecat import Agent, HoldUp, Loudspeaker, agent, cut, history, reply
from testbed.scripted_server import Script, Step
from testbed.scripted_time import ScriptedLoop, run_scripted
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError, ErrorCode, OverloadedError
from voiceagent_tts.text.words import split_words

WORD_MS = 300
WORDS = 20
TEXT = " ".join("w" * WORDS)
HEARD_MS = 20
AHEAD_S = 0.17
"""How long before its playback a server sends a word whose time an aligner finds."""


def heard(played_samples: int, words: int = WORDS) -> int:
    """How many words were heard."""
    played_ms = 1000 * played_samples / SAMPLE_RATE_HZ
    return sum(index * WORD_MS + HEARD_MS <= played_ms for index in range(words))


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


WHOLE = script(audio_steps(0.0, 80), word_steps(AHEAD_S, WORDS))
"""A context of `TEXT`, made at once."""
THREE_WORDS = script(audio_steps(0.0, 80, 3), word_steps(AHEAD_S, 3, 3), [Step(0.5)])
"""A context of a short text."""


def interruption(after_s: float = 2.02) -> tuple[float, list[Frame]]:
    """An interruption, so long after the first chunk or the act before."""
    return after_s, [InterruptionFrame()]


@pytest.mark.parametrize("after_s", [0.07, 1.97])
@pytest.mark.parametrize(("rtf", "known"), [(0.0, 0), (0.0, 4), (0.0, WORDS), (0.5, 0)])
def test_words_that_come_behind_their_audio_are_in_the_history(
    rtf: float, known: int, after_s: float
) -> None:
    """However much audio waits to be played in front of them."""
    spoken = script(audio_steps(rtf, 80), word_steps(AHEAD_S, known))
    (committed,), (played_samples,) = cut(reply(TEXT), spoken, after_s)
    assert len(committed.split()) == heard(played_samples) > 0


@pytest.mark.parametrize("pause_at_ms", [0, 1_200])
@pytest.mark.parametrize("after_s", [0.3, 3.5, 4.27])
def test_words_wait_for_sound_that_comes_late(pause_at_ms: int, after_s: float) -> None:
    """At the start, or behind a language model that stalls: words follow their audio."""
    whole = script(audio_steps(0.0, 100), word_steps(AHEAD_S, WORDS))
    parts = [step for step in whole.steps if step.samples]
    first, rest = parts[: pause_at_ms // 100], parts[pause_at_ms // 100 :]
    words_ms = tuple(index * WORD_MS for index in range(WORDS))
    known = pause_at_ms // WORD_MS
    spoken = script(
        [Step(0.0, words_ms=words_ms[:known])] * bool(known), first,
        [Step(4.0, words_ms=words_ms[known:])], [replace(step, at_s=4.0) for step in rest],
    )  # fmt: skip
    messages, (played_samples,) = cut(reply(TEXT), spoken, after_s)
    assert [len(message.split()) for message in messages] == [heard(played_samples)]


@pytest.mark.parametrize("after_s", [1.05, 1.08, 1.74])
def test_a_word_of_audio_that_fills_no_chunk_is_not_in_the_history(after_s: float) -> None:
    """A transport that runs dry keeps what is less than a chunk until more comes."""
    spoken = script(audio_steps(1.2, 20), word_steps(AHEAD_S, WORDS))
    (committed,), (played_samples,) = cut(
        reply(TEXT), spoken, after_s, loudspeaker=Loudspeaker(100)
    )
    assert len(committed.split()) == heard(played_samples) > 2


@pytest.mark.parametrize("passed_on", [0, 8])
@pytest.mark.parametrize("after_s", [0.07, 1.97])
def test_an_interruption_from_behind_the_service_ends_the_history(
    after_s: float, passed_on: int
) -> None:
    """Other processors may be between the one that interrupts, such as a gate, and the service."""
    messages, played_samples = cut_from_behind(WHOLE, after_s, passed_on)
    assert [len(message.split()) for message in messages] == [heard(played_samples[0]), 3]


def test_an_interruption_from_behind_takes_words_back() -> None:
    """Those that left by an estimate, as after any interruption."""
    spoken = replace(estimated(900), moved_after_s=0.25)
    assert cut_from_behind(spoken, 2.02)[0][0] == "w w w w"


def cut_from_behind(
    spoken: Script, after_s: float, passed_on: int = 0
) -> tuple[list[str], list[int]]:
    """Speak, interrupt between the service and the transport, and speak on.

    Args:
        spoken: what the server sends for each context.
        after_s: seconds from the first chunk that plays to the interruption.
        passed_on: processors that pass the interruption on to the service.

    Returns:
        The messages in the history, and the played audio of each utterance, in samples.
    """
    between = [Passing() for _ in range(passed_on + 1)]
    return history(
        spoken,
        (0.0, reply(TEXT)),
        (after_s, lambda _: between[-1].broadcast_interruption()),
        (2.0, [TTSSpeakFrame("x y z")]),
        (8.0, []),
        between=between,
    )


class Passing(FrameProcessor):
    """Passes all frames on."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Pass `frame` on."""
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)


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
    speaker = Loudspeaker(chunk_ms)
    committed, played_samples = cut(frames, spoken, after_s, loudspeaker=speaker)
    counts = [min(few, heard(samples)) for samples in played_samples]
    assert [len(message.split()) for message in committed] == [each for each in counts if each]


def test_a_long_queue_does_not_run_ahead_of_its_sound() -> None:
    """The eighth utterance in a row is cut as exactly as the first."""
    few = 5
    spoken = script(audio_steps(0.0, 80, few), word_steps(AHEAD_S, few, few))
    committed, played_samples = cut([TTSSpeakFrame(" ".join("w" * few))] * 8, spoken, 12.95)
    assert len(played_samples) == 8 and 0 < heard(played_samples[-1]) < few
    assert [len(message.split()) for message in committed] == [few] * 7 + [
        heard(played_samples[-1])
    ]


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
    speaker = Loudspeaker(40, catches_up=catches_up)
    (committed,), (played_samples,) = cut(
        reply(TEXT), spoken, after_s, hold_up=hold_up, loudspeaker=speaker
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
    speaker = Loudspeaker(40, catches_up=catches_up)
    committed, played_samples = cut(
        [*reply(text), *reply(text)], spoken, after_s, hold_up=hold_up, loudspeaker=speaker
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

    twice = (act for _ in range(2) for act in ((0.3, reply(TEXT)), interruption(1.0)))
    messages, played_samples = history(WHOLE, *twice)
    assert [len(message.split()) for message in messages] == [
        heard(each) for each in played_samples
    ]
    assert len(messages) == 2


@pytest.mark.parametrize("catches_up", [False, True])
@pytest.mark.parametrize("after_s", [1.153, 1.19])
@pytest.mark.parametrize("turns", [0, 12, 24])
def test_a_word_that_begins_while_an_interruption_is_handled_is_in_the_history(
    monkeypatch: pytest.MonkeyPatch, turns: int, after_s: float, catches_up: bool
) -> None:
    """Other programs have the processor at that time, and the word is due before the end."""
    push_frame, hold_ups_s = VoiceAgentTTSService.push_frame, [0.05]

    async def push_late(service: VoiceAgentTTSService, frame: Frame, *rest: Any) -> None:
        if isinstance(frame, InterruptionFrame) and hold_ups_s:
            cast("ScriptedLoop", asyncio.get_running_loop()).hold_up(hold_ups_s.pop())
            for _ in range(turns):
                await asyncio.sleep(0)
        await push_frame(service, frame, *rest)

    monkeypatch.setattr(VoiceAgentTTSService, "push_frame", push_late)
    speaker = Loudspeaker(40, catches_up=catches_up)
    (committed,), (played_samples,) = cut(reply(TEXT), WHOLE, after_s, loudspeaker=speaker)
    assert len(committed.split()) == heard(played_samples)


def test_an_interruption_does_not_wait_for_a_machine_without_time() -> None:
    """Between two reports of the transport, the event loop turns a few times only."""

    async def starve(_: Agent) -> None:
        loop = cast("ScriptedLoop", asyncio.get_running_loop())
        for _ in range(1_000):
            loop.hold_up(0.002)
            await asyncio.sleep(0)

    _, (played_samples,) = history(WHOLE, (0.0, reply(TEXT)), interruption(1.0), (0.0, starve))
    assert 1.0 < played_samples / SAMPLE_RATE_HZ < 2.0


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


def test_a_reply_goes_on_past_a_context_that_accepts_no_more() -> None:
    """One at the limit of its audio refuses text, and then sends what it has."""
    spoken = script(audio_steps(1.0, 100, 3), word_steps(AHEAD_S, 3, 3), [Step(1.0)])
    messages, (played_samples,) = history(
        spoken,
        (0.0, [LLMFullResponseStartFrame(), LLMTextFrame("w w w. ")]),
        (0.4, [LLMTextFrame("w "), LLMTextFrame("w."), LLMFullResponseEndFrame()]),
        (4.0, []),
        first=[replace(spoken, closed_s=0.3)],
    )
    assert messages == ["w w w. w w."]
    assert played_samples >= 2 * 3 * WORD_MS * SAMPLE_RATE_HZ // 1000


def test_text_that_arrives_while_a_context_ends_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has ended it, and its last words are on their way."""
    add_words = VoiceAgentTTSService._add_words
    late = [LLMTextFrame("w w."), LLMFullResponseEndFrame()]

    async def run() -> tuple[list[str], int]:
        spoken = script(audio_steps(0.0, 100, 3), word_steps(AHEAD_S, 3, 3))
        async with agent(spoken, Loudspeaker(40)) as talk:

            async def add_words_late(service: Any, context_id: str, words: list[Any]) -> None:
                if service._turns[context_id].record is None and late:
                    await talk.worker.queue_frame(late.pop(0))
                    await talk.worker.queue_frame(late.pop(0))
                    await asyncio.sleep(0.05)
                await add_words(service, context_id, words)

            monkeypatch.setattr(VoiceAgentTTSService, "_add_words", add_words_late)
            await talk.say([LLMFullResponseStartFrame(), LLMTextFrame("w w w. ")])
            await asyncio.sleep(5.0)
            return talk.messages, sum(talk.loudspeaker.played_samples)

    messages, played_samples = run_scripted(run())
    assert (" ".join(messages), late) == ("w w w. w w.", [])
    assert played_samples >= 2 * 3 * WORD_MS * SAMPLE_RATE_HZ // 1000


KNOWN = 4
"""Words whose times the server knows from the start."""


def estimated(late_ms: int, end_s: float = 9.0, words: int = WORDS) -> Script:
    """Words that leave by estimates, but for the first ones; the others are later than those.

    Less than 0 is earlier.
    """
    true_ms = tuple(index * WORD_MS + late_ms * (index >= KNOWN) for index in range(words))
    sent = [step for step in word_steps(AHEAD_S, words=words) if step.at_s < end_s]
    rest_ms = tuple(index * WORD_MS for index in range(len(sent), words))
    spoken = script(audio_steps(0.0, 80, words), sent, [Step(end_s, words_ms=rest_ms)])
    return replace(spoken, true_ms=true_ms, moved_after_s=0.0)


@pytest.mark.parametrize(
    ("end_s", "latency_s"),
    [(9.0, 0.0), (1.7, 0.0), (9.0, 0.4)],
    ids=["at the cut", "at the end of the audio", "on their way"],
)
@pytest.mark.parametrize("late_ms", [-120, 0, 250, 900, 3_000])
def test_words_with_estimates_are_cut_by_the_best_time_known(
    late_ms: int, end_s: float, latency_s: float
) -> None:
    """The server has said, before the cut, that they are earlier or later: so does the history."""
    spoken = replace(estimated(late_ms, end_s), moved_after_s=0.03)
    messages, (played_samples,) = cut(reply(TEXT), spoken, 2.02, output_latency_s=latency_s)
    heard_ms = 1000 * (played_samples / SAMPLE_RATE_HZ - latency_s)
    truth = sum(start_ms + HEARD_MS <= heard_ms for start_ms in spoken.true_ms)
    assert [len(message.split()) for message in messages] == [truth]


def test_a_reply_of_which_nothing_was_heard_leaves_no_message() -> None:
    """Its first words had left by estimates."""
    late_ms = tuple(index * WORD_MS + 2_000 for index in range(WORDS))
    spoken = replace(estimated(0), true_ms=late_ms)
    assert cut(reply(TEXT), spoken, 0.7)[0] == []


@pytest.mark.parametrize("last_ms", [1_499, 1_500, 2_000])
def test_a_reply_that_was_heard_to_its_end_stays_whole(last_ms: int) -> None:
    """Also if an aligner finds its last word at the end of the audio, or behind it."""
    spoken = script(audio_steps(0.0, 100, 5), word_steps(AHEAD_S, words=5))
    spoken = replace(spoken, true_ms=(0, 310, 620, 930, last_ms), moved_after_s=0.0)
    assert cut(reply("a b c d e"), spoken, 4.0)[0] == ["a b c d e"]


def aligned(words: int, end_s: float | None = None) -> Script:
    """Words whose times an aligner finds; all of them are right."""
    ends = [] if end_s is None else [Step(end_s)]
    spoken = script(audio_steps(0.0, 100, words), word_steps(AHEAD_S, words=words), ends)
    true_ms = tuple(index * WORD_MS for index in range(words))
    return replace(spoken, true_ms=true_ms, moved_after_s=0.0)


def late(lead_ms: int, words: int) -> Script:
    """The same behind silence."""
    starts_ms = tuple(lead_ms + index * WORD_MS for index in range(words))
    steps = [Step(max(0.0, ms / 1000 - AHEAD_S), words_ms=(ms,)) for ms in starts_ms]
    spoken = script(audio_steps(0.0, 100, words), steps)
    return replace(spoken, true_ms=starts_ms, moved_after_s=0.0)


@pytest.mark.parametrize("last_ms", [600, 900, 950])
def test_a_server_that_waits_for_text_is_not_silent(last_ms: int) -> None:
    """Although the last word was found at the end of its audio: it is not spoken again."""
    steps = (
        Step(0.0, samples=12_000, words_ms=(0, 300)), Step(0.2, words_ms=(600,)),
        Step(0.3, samples=9_600),
    )  # fmt: skip
    spoken = Script(steps, end_s=60.0, true_ms=(0, 300, last_ms), moved_after_s=0.0)
    begun = [LLMFullResponseStartFrame(), LLMTextFrame("a b c, ")]
    _, (played_samples,) = history(spoken, (0.0, begun), (3.0, []), response_timeout_s=1.2)
    assert played_samples <= (3 * WORD_MS + 40) * SAMPLE_RATE_HZ // 1000


FILLER = [TTSSpeakFrame("v w x y z", append_to_context=False)]


def test_an_utterance_may_stay_out_of_the_history() -> None:
    """As Pipecat Flows' `tts_say` asks for with `append_text_to_context=False`."""
    acts = (0.0, FILLER), (2.0, [TTSSpeakFrame("x y z")]), (2.0, [])
    messages, played = history(THREE_WORDS, *acts, first=[aligned(5)])
    assert messages == ["x y z"] and len(played) == 2


@pytest.mark.parametrize(
    ("loss_s", "then", "second", "latency_s"),
    [
        (None, FILLER, (aligned(5), 4.0), 0.0),
        (None, FILLER, (replace(aligned(5), true_ms=(), moved_after_s=None), 4.0), 0.3),
        (None, reply("x"), (late(150, 1), 0.1), 0.25),
        (1.45, FILLER, (aligned(5), 4.0), 0.0),
    ],
    ids=["a filler", "by an engine", "a reply cut early", "lost before its end"],
)
def test_a_reply_that_was_heard_stays_whatever_is_cut_behind_it(
    loss_s: float | None, then: list[Frame], second: tuple[Script, float], latency_s: float
) -> None:
    """No word of what follows has left for the history when the user speaks."""
    first, (following, after_s) = aligned(5, 9.0 if loss_s else None), second
    loss = [] if loss_s is None else [(loss_s, lose_connection), (1.5, [])]
    messages, _ = history(
        following,
        (0.0, reply("a b c d e")),
        *(loss or [(2.5, [])]),
        (0.0, then),
        interruption(after_s),
        first=[first],
        output_latency_s=latency_s,
    )
    assert messages == ["a b c d e"]


async def lose_connection(talk: Agent) -> None:
    """Close the sockets of the server."""
    await talk.server.drop_connections()


@pytest.mark.parametrize("after_s", [1.7, 1.75])
def test_a_reply_that_was_heard_stays_before_the_first_word_queued_behind_it(
    after_s: float,
) -> None:
    """Its audio, and that of an utterance behind it, have left together."""
    frames = [*reply("a b c d e"), TTSSpeakFrame("x y z")]
    messages, _ = cut(frames, late(100, 3), after_s, first=[aligned(5)])
    assert messages == ["a b c d e"]


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(
    ("then", "said"),
    [(TTSSpeakFrame("w w w"), ["w w w"]), (InterruptionFrame(), [])],
    ids=["an utterance", "another interruption"],
)
def test_what_follows_a_cut_changes_nothing_of_it(
    then: Frame, said: list[str], wait_s: float
) -> None:
    """The next words stay."""
    acts = (0.0, reply(TEXT)), interruption(), (wait_s, [then]), (2.0, [])
    messages, _ = history(THREE_WORDS, *acts, first=[estimated(900)])
    assert messages == ["w w w w", *said]


@pytest.mark.parametrize("after_s", [0.5, 0.75, 1.02])
@pytest.mark.parametrize("known", [0, 10])
def test_an_utterance_that_is_not_interrupted_keeps_its_white_space(
    known: int, after_s: float
) -> None:
    """Words that wait for their audio, and those that come later, belong to one message."""
    utterance = TTSSpeakFrame("a b c d e f g h i j")
    utterance.interruptible = False

    spoken = script(audio_steps(0.0, 80, 10), word_steps(AHEAD_S, known, 10), [Step(3.0)])
    said, _ = history(spoken, (0.0, [utterance]), interruption(after_s), (5.0, []))
    assert len(said) == 2 and " ".join(said) == utterance.text


@pytest.mark.parametrize("begin", [[], [LLMFullResponseStartFrame()]], ids=["alone", "in a reply"])
@pytest.mark.parametrize(
    ("after_s", "left"), [(0.0, ["a b c."]), (0.15, ["a b c."]), (0.6, ["a b", "c."])]
)
def test_an_utterance_that_is_not_interrupted_is_of_no_later_message(
    begin: list[Frame], after_s: float, left: list[str]
) -> None:
    """Also when its text is still being transformed; it is heard once, and a reply behind it."""

    async def transform(text: str, _: str) -> str:
        await asyncio.sleep(0.3)
        return text

    async def run() -> list[str]:
        transforms = [("*", transform)]
        async with agent(THREE_WORDS, Loudspeaker(40), text_transforms=transforms) as talk:
            utterance = TTSSpeakFrame("a b c.")
            utterance.interruptible = False
            await write(talk, [(0.0, begin), (0.1, [])])
            await talk.service.queue_frame(utterance)
            await asyncio.sleep(0.01 + after_s)
            await talk.worker.queue_frame(InterruptionFrame())
            await write(talk, [(2.5, reply("x y z."))])
            await asyncio.sleep(5.0)
            return talk.messages

    assert run_scripted(run()) == [*left, "x y z."]


def test_words_are_taken_back_from_their_own_message() -> None:
    """An utterance behind that message, of which no word was heard, begins with the same text."""
    starts_ms = (300, 600, 900)
    spoken = script(audio_steps(0.0, 100, 4), [Step(0.0, words_ms=starts_ms)])
    spoken = replace(spoken, true_ms=starts_ms, moved_after_s=0.0)
    messages, played = cut([*reply("w w w"), TTSSpeakFrame("w w w w")], spoken, 1.55)
    assert len(played) == 2 and messages == ["w w w"]


@pytest.mark.parametrize("following", [[], [TTSSpeakFrame("x y z")]], ids=["alone", "another"])
def test_the_end_of_a_reply_is_corrected_whatever_follows_it(following: list[Frame]) -> None:
    """The audio of an utterance that is queued behind it has left before its own was heard."""
    spoken = estimated(250, 1.2, 6)
    messages, _ = cut([*reply("a b c d e f"), *following], THREE_WORDS, 1.62, first=[spoken])
    assert messages == ["a b c d e"]


def refused() -> Script:
    """A context that the server does not accept, but the next one."""
    return Script((), end_s=0.0, failure=OverloadedError("it is full", retry_after_ms=100))


@pytest.mark.parametrize(
    ("first", "begin", "left"),
    [
        ([refused()], "", "w w w w"),
        ([replace(script(audio_steps(0.0, 100, 2), word_steps(AHEAD_S, 2, 2)),
                  end_s=0.3, failure=EngineError("the engine process has ended"))],
         "a a ", "a a w w w w"),
    ],
    ids=["refused", "resumed"],
)  # fmt: skip
def test_words_are_taken_back_by_the_times_of_their_own_context(
    first: list[Script], begin: str, left: str
) -> None:
    """A turn whose first context has ended is spoken by another one, from its start or later."""
    after_s = 2.02 + 0.3 * len(begin.split())
    assert cut(reply(begin + TEXT), estimated(900), after_s, first=first)[0] == [left]


def test_words_are_taken_back_although_the_connection_was_lost() -> None:
    """By the times that were known until then; another context speaks on behind them."""
    lost = replace(
        script(audio_steps(0.0, 100, 8), word_steps(AHEAD_S, words=8)),
        true_ms=(0, 300, 600, 900, 2_100, 2_400, 2_700, 3_000), moved_after_s=0.0,
    )  # fmt: skip
    acts = (0.0, reply(TEXT)), (1.6, lose_connection), interruption(0.1)
    assert history(estimated(900), *acts, first=[lost])[0] == ["w w w w"]


@pytest.mark.parametrize("after_s", [0.5, 0.8, 9.0])
@pytest.mark.parametrize(
    "text",
    [
        "a 2 €.", "a ok 👍", "a b ✓. c", "a 5 =", "👍 a b c", "a & b", "a b ?!", "a 2 €. 3 €.",
        "a ™ b",
    ],
)  # fmt: skip
def test_symbols_between_words_are_committed_once(text: str, after_s: float) -> None:
    """Pipecat takes some at the end of a sentence for spoken with the last word."""
    words = split_words(text)
    spoken = script(audio_steps(0.0, 80, len(words)), word_steps(AHEAD_S, 0, len(words)))
    (committed,), (played_samples,) = cut(reply(text), spoken, after_s)
    count = min(heard(played_samples), len(words))
    ends = [word.char_end for word in words[:count]]
    assert text.startswith(committed) and split_words(committed)[-1].char_end <= ends[-1]
    assert len(split_words(committed)) == count
    assert count < len(words) or committed == text


async def _spell(text: str, _: str) -> str:
    return text.replace("w", "vv")


@pytest.mark.parametrize(
    ("said", "options", "left"),
    [
        ([TTSSpeakFrame("a b c")], {}, "a b c w w w w"),
        ([LLMMarkerFrame("!", append_to_context_immediately=False)], {}, "! w w w w"),
        ([], {"text_transforms": [("*", _spell)]}, "w w w w"),
    ],
    ids=["another utterance", "a marker", "a transform"],
)
def test_words_are_taken_back_from_a_message_with_other_text(
    said: list[Frame], options: dict[str, Any], left: str
) -> None:
    """The message is not the server's text."""
    is_speech = any(isinstance(frame, TTSSpeakFrame) for frame in said)
    first = [script(audio_steps(0.0, 100, 3), word_steps(AHEAD_S, 3, 3))] if is_speech else []
    start, *rest = reply(TEXT)
    after_s = 2.02 + (1.1 if is_speech else 0.0)
    messages, _ = cut([start, *said, *rest], estimated(900), after_s, first=first, **options)
    assert messages == [left]


def test_a_correction_does_not_overtake_the_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy program passes the interruption on late, when words have left by estimates."""
    spoken = estimated(900)

    async def wait(service: VoiceAgentTTSService) -> None:
        await asyncio.sleep(0.02)

    monkeypatch.setattr(VoiceAgentTTSService, "stop_all_metrics", wait)
    messages, (played_samples,) = cut(reply(TEXT), spoken, 1.9)
    heard_ms = 1000 * played_samples / SAMPLE_RATE_HZ
    assert sum(start_ms + HEARD_MS <= heard_ms for start_ms in spoken.true_ms) == 4
    assert messages == ["w w w w"]


@pytest.mark.parametrize("after_s", [0.3, 1.05, 1.4, 1.48, 1.6, 1.65])
def test_words_that_are_on_their_way_to_the_listener_are_not_heard(after_s: float) -> None:
    """Also those of the last 0.4 s of a reply, of which no more is played."""
    few, latency_s = 5, 0.4

    spoken = script(audio_steps(0.0, 100, few), word_steps(AHEAD_S, few, few))
    messages, (played_samples,) = cut(
        reply("w w w w w"), spoken, after_s, output_latency_s=latency_s
    )
    played_s = max(played_samples / SAMPLE_RATE_HZ, after_s)
    count = heard(round((played_s - latency_s) * SAMPLE_RATE_HZ))
    assert [len(message.split()) for message in messages] == [count] * bool(count)


@pytest.mark.parametrize(
    ("loudspeaker", "is_switched", "lost_s"),
    [
        (Loudspeaker(80), True, 0.0),
        (Loudspeaker(40, deaf=HoldUp(1.0, 1.2)), False, 1.2),
    ],
    ids=["in a service switcher", "writing fails for a while"],
)
def test_speech_goes_on(loudspeaker: Loudspeaker, is_switched: bool, lost_s: float) -> None:
    """Whatever the length of the chunks, and after audio for which no report comes."""
    after_s, spoken = 5.0, script(audio_steps(0.0, 80), word_steps(AHEAD_S))
    (committed,), (played_samples,) = cut(
        reply(TEXT), spoken, after_s, loudspeaker=loudspeaker, is_switched=is_switched
    )
    assert played_samples > (after_s - lost_s - 0.1) * SAMPLE_RATE_HZ
    assert len(committed.split()) == heard(played_samples)


def written(text: str, token_s: float, thinking_s: float = 0.0) -> list[tuple[float, list[Frame]]]:
    """A reply whose tokens, of up to three letters, come one by one, after the LLM has thought."""
    tokens = re.findall(r"\s*\w{1,3}|\s*[^\w\s]+|\s+", text)
    tokens_in_time: list[tuple[float, list[Frame]]] = [
        (token_s, [LLMTextFrame(token)]) for token in tokens
    ]
    return [
        (0.0, [LLMFullResponseStartFrame()]),
        (thinking_s, []),
        *tokens_in_time,
        (0.0, [LLMFullResponseEndFrame()]),
    ]


def spoken_while_written(text: str, token_s: float) -> Script:
    """Each word follows its tokens, and no word comes long before it plays."""
    words = split_words(text)
    ends_s = [0.2 + token_s * (len(written(text[: word.char_end], 0.0)) - 2) for word in words]
    at_s = list(accumulate(ends_s, lambda before, end: max(before + 0.1, end)))
    samples = WORD_MS * SAMPLE_RATE_HZ // 1000
    steps = [
        Step(at, samples=samples, words_ms=(index * WORD_MS,)) for index, at in enumerate(at_s)
    ]
    return Script(tuple(steps), end_s=at_s[-1] + 0.1)


LONG = "Monday and **Tuesday,** and\n\n- $3.50, and Wednesday, e.g. Thursday! Then Friday"


@pytest.mark.parametrize("token_s", [0.003, 0.1, 0.25])
@pytest.mark.parametrize("cut_s", [None, 1.35])
def test_a_slow_llm_whose_tokens_are_passed_on(token_s: float, cut_s: float | None) -> None:
    """The history has the words that were heard, in order, before their sentence is complete."""

    async def run() -> tuple[list[str], int]:
        spoken, loudspeaker = spoken_while_written(LONG, token_s), Loudspeaker(40)
        async with agent(spoken, loudspeaker, text_aggregation_mode="token") as talk:
            writing = asyncio.create_task(write(talk, written(LONG, token_s)))
            await loudspeaker.begun()
            if cut_s is None:
                await writing
                await asyncio.sleep(6.0)
            else:
                await asyncio.sleep(cut_s)
                writing.cancel()
                await talk.worker.queue_frame(InterruptionFrame())
                await asyncio.sleep(0.5)
            return talk.messages, loudspeaker.played_samples[0]

    messages, played_samples = run_scripted(run())
    assert messages == [LONG[: split_words(LONG)[heard(played_samples, 11) - 1].char_end]]
    assert cut_s is not None or messages == [LONG]


@pytest.mark.parametrize(
    ("then", "left", "words"),
    [
        (LLMFullResponseEndFrame, "One moment please", 3),
        (InterruptionFrame, "One moment", 2),
    ],
)
def test_a_word_that_may_still_grow_waits_for_an_llm_that_pauses(
    then: type[Frame], left: str, words: int
) -> None:
    """However long that is: the word is in the history when it was heard."""
    first = script(audio_steps(0.0, 100, 2), word_steps(AHEAD_S, 2, 2))
    last = Step(7.2, samples=WORD_MS * SAMPLE_RATE_HZ // 1000, words_ms=(2 * WORD_MS,))
    spoken = Script((*first.steps, last), end_s=7.3)

    tokens = [LLMTextFrame(token) for token in ("One", " moment", " please")]
    messages, played_samples = history(
        spoken,
        (0.0, [LLMFullResponseStartFrame(), *tokens]),
        (6.8, [then()]),
        (5.0, []),
        text_aggregation_mode="token",
        response_timeout_s=3.0,
    )
    assert messages == [left]
    assert sum(played_samples) >= words * WORD_MS * SAMPLE_RATE_HZ // 1000


async def write(talk: Agent, frames: list[tuple[float, list[Frame]]]) -> None:
    """Let `frames` enter the service, each so many seconds after the one before."""
    for wait_s, some in frames:
        await asyncio.sleep(wait_s)
        for frame in some:
            await talk.worker.queue_frame(frame)


def test_tokens_that_leave_when_the_next_reply_has_begun_are_joined() -> None:
    """The words before them are still being played while the LLM thinks about that."""
    text = "Monday and Tuesday and Thursday."

    starts_ms = [1_000 * index for index in range(5)]
    steps = [Step(1.0, samples=SAMPLE_RATE_HZ, words_ms=(start,)) for start in starts_ms]
    both = written(text, 0.1) + written(text, 0.1, thinking_s=2.0)
    messages, _ = history(
        Script(tuple(steps), end_s=3.0),
        (0.0, lambda talk: write(talk, both)),
        (12.0, []),
        aggregate_sentences=False,
    )
    assert messages == [text, text]


def frames_of(said: str) -> list[Frame]:
    """Tokens between `|`; `[` and `]` begin and end a reply, `!` speaks, `#` is a sentence."""
    kinds: dict[str, Callable[[str], Frame]] = {
        "[": lambda _: LLMFullResponseStartFrame(),
        "]": lambda _: LLMFullResponseEndFrame(),
        "!": TTSSpeakFrame,
        "#": lambda text: AggregatedTextFrame(text, "sentence"),
    }
    return [kinds.get(each[0], lambda _, text=each: LLMTextFrame(text))(each[1:])
            for each in said.split("|")]  # fmt: skip


@pytest.mark.parametrize("mode", ["sentence", "token"])
@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("[|a b.| |#c d.|e f.|]", "a b. c d. e f."),
        ("[|a b.|#c d.| e f.|]", "a b. c d. e f."),
        ("[|#a b.|#c d.|e f.|]", "a b. c d. e f."),
        ("[|a b.|#c d.|!e.|f.|]", "a b. c d. f. e."),
        ("[|a b.|!e f.| c d.|]", "a b. c d. e f."),
        ("[|a |b|!e f.|x c d.|]", "a bx c d. e f."),
        ("[|!a b.|c |d.|]", "a b. c d."),
        ("[|a b.|[|c d.|]", "a b. c d."),
        ("#a b.|#c d.|[|e f.|]", "a b. c d. e f."),
    ],
)
def test_texts_of_others_in_a_reply_are_heard_in_order(said: str, left: str, mode: str) -> None:
    """Behind what the LLM has written, words apart; an utterance is behind the reply."""
    spoken = script(audio_steps(0.0, 80, 6), word_steps(AHEAD_S, 6, 6))
    acts = (0.0, frames_of(said)), (7.0, [])
    assert history(spoken, *acts, text_aggregation_mode=mode)[0] == [left]


@pytest.mark.parametrize(("other", "left"), [("#c d.", "c d. a b e."), ("!c d.", "c d. a b e.")])
def test_an_incomplete_sentence_of_an_aggregator_is_heard_behind_the_texts_of_others(
    other: str, left: str
) -> None:
    """Only the aggregator itself knows how its text can be divided."""
    acts = (0.0, frames_of(f"[|a b|{other}| e.|]")), (7.0, [])
    messages, _ = history(THREE_WORDS, *acts, text_aggregator=SimpleTextAggregator())
    assert messages == [left]


def unspoken(text: str) -> list[Frame]:
    """A reply that is not spoken."""
    frames = reply(text)
    for frame in frames:
        cast("LLMTextFrame", frame).skip_tts = True
    return frames


@pytest.mark.parametrize("after_s", [0.0, 0.4, 0.65, 0.8, 2.0])
@pytest.mark.parametrize(
    ("is_in_reply", "left"), [(True, ["a b c. x=1"]), (False, ["a b c.", "x=1"])]
)
def test_text_that_is_not_spoken_stands_behind_what_was_said_before_it(
    is_in_reply: bool, left: list[str], after_s: float
) -> None:
    """Whether the words before it wait for their audio, or their audio is still playing."""
    said = reply("a b c. ")
    then = [AggregatedTextFrame("x=1", "code"), said.pop()] if is_in_reply else unspoken("x=1")
    acts = (0.0, said), (after_s, then), (5.0, [])
    assert history(THREE_WORDS, *acts, skip_text_types=["code"])[0] == left


def test_a_reply_that_is_not_spoken_splits_no_word_of_another_one() -> None:
    """Two LLMs write at a time."""
    begin, text, end = reply("Tues")
    rest, (other_begin, *other) = LLMTextFrame("day is fine. "), unspoken("x=1")

    frames = [begin, text, other_begin, rest, *other, end]
    messages, _ = history(THREE_WORDS, (0.0, frames), (5.0, []))
    assert messages == ["Tuesday is fine. x=1"]


@pytest.mark.parametrize("latency_s", [0.0, 0.6])
def test_a_function_call_stands_behind_what_was_said_before_it(latency_s: float) -> None:
    """Also while that is on its way to the listener, and its result runs the LLM."""
    call = {"function_name": "look", "tool_call_id": "1", "arguments": {}}
    called = [FunctionCallInProgressFrame(**call), FunctionCallResultFrame(**call, result="it")]

    async def run() -> list[str]:
        async with agent(THREE_WORDS, Loudspeaker(40), output_latency_s=latency_s) as talk:
            await talk.say([*reply("a b c."), *called])
            await asyncio.sleep(5.0)
            return [str(each.get("content")) for each in cast("list[Any]", talk.context.messages)]

    assert run_scripted(run()) == ["a b c.", "None", '"it"']


def dies(at_s: float, step: Step | None = None) -> Script:
    """A context whose engine dies, and what it sends before."""
    failure = EngineError("the engine process has ended")
    return Script((step,) if step else (), end_s=at_s, failure=failure)


def restarting(at_s: float, retry_after_ms: int = 1_000) -> Script:
    """A context that waits for an engine, in vain."""
    code = ErrorCode.MODEL_NOT_READY
    failure = OverloadedError("it restarts", code=code, retry_after_ms=retry_after_ms)
    return Script((), end_s=at_s, failure=failure)


IN_ONE_WORD = [dies(0.05, Step(0.0, samples=480))] * 3


DEATHS = {
    "before sound": [dies(0.0), dies(3.0)],
    "on opening": [dies(0.05), restarting(5.0), dies(2.0)],
    "words alone": [dies(0.05, Step(0.0, words_ms=(0, 300)))],
    "in one word": IN_ONE_WORD,
    "in two words": [
        *IN_ONE_WORD, dies(0.05, Step(0.0, samples=7_200, words_ms=(0,))), *IN_ONE_WORD
    ],
    "asks for a long wait": [dies(0.05), restarting(0.0, retry_after_ms=60_000)],
}  # fmt: skip


@pytest.mark.parametrize("first", DEATHS.values(), ids=DEATHS)
def test_a_reply_whose_engine_dies_is_whole(first: list[Script]) -> None:
    """However often and wherever, within the patience of the listener."""
    spoken = script(audio_steps(0.0, 80, 3), word_steps(AHEAD_S, words=3))
    messages, played_samples = history(spoken, (0.0, reply("w w w")), (5.0, []), first=first)
    assert messages == ["w w w"]
    assert sum(played_samples) >= 3 * WORD_MS * SAMPLE_RATE_HZ // 1000


@pytest.mark.parametrize(("deaths", "left"), [(3, ["w w w"]), (4, [])])
def test_a_turn_fails_when_its_engine_has_died_four_times_without_another_word(
    deaths: int, left: list[str]
) -> None:
    """Nothing of it is committed then."""
    spoken = script(audio_steps(0.0, 80, 3), word_steps(AHEAD_S, words=3))
    first = [dies(0.05, Step(0.0, samples=480))] * deaths
    assert history(spoken, (0.0, reply("w w w")), (5.0, []), first=first)[0] == left
