"""A turn in Pipecat's history, on a scripted clock: word for word what was heard, in order."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

import numpy as np
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
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator

from testbed.pipecat_conversation import (
    Conversation,
    HoldUp,
    Loudspeaker,
    Outcome,
    Passing,
    cut,
    history,
    lose_connection,
    reply,
    scripted,
)
from testbed.scripted_server import Script, Step, whole
from testbed.scripted_time import ScriptedLoop, run_scripted
from testbed.waiting import until
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
FEW = 5
FEW_TEXT = " ".join("w" * FEW)


def heard(played_samples: int, starts_ms: Sequence[int], latency_s: float = 0.0) -> int:
    """How many words with these starts were heard."""
    heard_ms = 1000 * (played_samples / SAMPLE_RATE_HZ - latency_s)
    return sum(start_ms + HEARD_MS <= heard_ms for start_ms in starts_ms)


def check_words(outcome: Outcome, words: int = WORDS) -> list[int]:
    """Check that the history has the words that were heard; returns how many of each utterance."""
    starts_ms = [index * WORD_MS for index in range(words)]
    counts = [heard(samples, starts_ms) for samples in outcome.played_samples]
    assert [len(message.split()) for message in outcome.messages] == [n for n in counts if n]
    return counts


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
THREE_WORDS = whole(3, end_s=0.5)
"""A context of a short text."""


def interruption(after_s: float = 2.02) -> tuple[float, list[Frame]]:
    """An interruption, so long after the first chunk or the act before."""
    return after_s, [InterruptionFrame()]


def loop() -> ScriptedLoop:
    """The loop that runs."""
    return cast("ScriptedLoop", asyncio.get_running_loop())


# Words leave with their audio.


@pytest.mark.parametrize("after_s", [0.07, 1.97])
@pytest.mark.parametrize(("rtf", "known"), [(0.0, 0), (0.0, 4), (0.0, WORDS), (0.5, 0)])
def test_words_that_come_behind_their_audio_are_in_the_history(
    rtf: float, known: int, after_s: float
) -> None:
    """However much audio waits to be played in front of them."""
    spoken = script(audio_steps(rtf, 80), word_steps(AHEAD_S, known))
    assert check_words(cut(reply(TEXT), spoken, after_s))[0] > 0


@pytest.mark.parametrize("pause_at_ms", [0, 1_200])
@pytest.mark.parametrize("after_s", [0.3, 3.5, 4.27])
def test_words_wait_for_sound_that_comes_late(pause_at_ms: int, after_s: float) -> None:
    """At the start, or behind a language model that stalls: words follow their audio."""
    parts = audio_steps(0.0, 100)
    first, rest = parts[: pause_at_ms // 100], parts[pause_at_ms // 100 :]
    words_ms = tuple(index * WORD_MS for index in range(WORDS))
    known = pause_at_ms // WORD_MS
    spoken = script(
        [Step(0.0, words_ms=words_ms[:known])] * bool(known), first,
        [Step(4.0, words_ms=words_ms[known:])], [replace(step, at_s=4.0) for step in rest],
    )  # fmt: skip
    check_words(cut(reply(TEXT), spoken, after_s))


@pytest.mark.parametrize("after_s", [1.05, 1.08, 1.74])
def test_a_word_of_audio_that_fills_no_chunk_is_not_in_the_history(after_s: float) -> None:
    """A transport that runs dry keeps what is less than a chunk until more comes."""
    spoken = script(audio_steps(1.2, 20), word_steps(AHEAD_S, WORDS))
    assert check_words(cut(reply(TEXT), spoken, after_s, loudspeaker=Loudspeaker(100)))[0] > 2


def sentence(text: str) -> list[Frame]:
    """An utterance outside of a reply."""
    return [TTSSpeakFrame(text)]


@pytest.mark.parametrize(
    ("after_s", "chunk_ms"), [(0.01, 20), (0.95, 40), (1.45, 40), (1.968, 10), (3.676, 20)]
)
@pytest.mark.parametrize("known", [0, FEW])
@pytest.mark.parametrize("said", [(reply, sentence, sentence), (sentence, reply, reply)])
def test_utterances_in_a_row_have_their_own_words(
    said: tuple[Callable[[str], list[Frame]], ...], known: int, after_s: float, chunk_ms: int
) -> None:
    """In the first word of one, in a later one, in its last one, and in the pause between two."""
    spoken = script(audio_steps(0.0, 80, FEW), word_steps(AHEAD_S, known, FEW))
    frames = [frame for utterance in said for frame in utterance(FEW_TEXT)]
    check_words(cut(frames, spoken, after_s, loudspeaker=Loudspeaker(chunk_ms)), FEW)


@pytest.mark.parametrize("chunk_ms", [20, 40, 100])
def test_utterances_in_a_row_are_heard_to_the_sample(chunk_ms: int) -> None:
    """A transport that ends one of them drops what does not fill a chunk of the next one."""
    speaker, step = Loudspeaker(chunk_ms), Step(0.0, samples=36_821, words_ms=(0, 300))
    acts = (0.0, sentence("a b") * 3), (8.0, [])
    outcome = history(Script((step,), end_s=0.0), *acts, loudspeaker=speaker)
    assert outcome.messages == ["a b"] * 3
    sent, played = (np.count_nonzero(np.frombuffer(pcm, "<i2")) for pcm in (step.pcm, speaker.pcm))
    assert played == 3 * sent


def test_a_long_queue_does_not_run_ahead_of_its_sound() -> None:
    """The eighth utterance in a row is cut as exactly as the first."""
    counts = check_words(cut(sentence(FEW_TEXT) * 8, whole(FEW), 12.95), FEW)
    assert counts[:-1] == [FEW] * 7 and 0 < counts[-1] < FEW


@pytest.mark.parametrize("catches_up", [False, True])
@pytest.mark.parametrize(
    ("hold_up", "after_s", "frames", "words"),
    [
        (HoldUp(0.5, 0.45), 0.95, reply(TEXT), WORDS),  # the interruption comes with the processor
        (HoldUp(0.5, 0.45), 1.9, reply(TEXT), WORDS),
        (HoldUp(0.21, 0.19), 2.75, reply(TEXT), WORDS),
        (HoldUp(1.0, 1.6), 3.31, reply(TEXT), WORDS),
        (HoldUp(1.2, 0.9), 2.6, reply(FEW_TEXT) * 2, FEW),  # at the start of the second one
        (HoldUp(1.6, 0.2), 2.2, reply(FEW_TEXT) * 2, FEW),
    ],
)
@pytest.mark.parametrize(("rtf", "are_known"), [(0.0, True), (0.5, False)])
def test_other_work_moves_no_word(
    rtf: float, are_known: bool, hold_up: HoldUp, after_s: float, frames: list[Frame], words: int,
    catches_up: bool,
) -> None:  # fmt: skip
    """A word is heard when its chunk plays, whatever the time: transports lose time or hurry."""
    spoken = script(audio_steps(rtf, 80, words), word_steps(AHEAD_S, words * are_known, words))
    speaker = Loudspeaker(catches_up=catches_up)
    check_words(cut(frames, spoken, after_s, hold_up=hold_up, loudspeaker=speaker), words)


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_reply_after_an_interruption_between_two_chunks_has_its_words(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """The transport plays one more chunk then, and does not report the start of the next reply."""
    hold_ups_s = [0.04]

    async def end_chunk(service: VoiceAgentTTSService) -> None:
        if hold_ups_s:
            loop().hold_up(hold_ups_s.pop())
            for _ in range(turns):
                await asyncio.sleep(0)

    monkeypatch.setattr(VoiceAgentTTSService, "stop_all_metrics", end_chunk)
    twice = (act for _ in range(2) for act in ((0.3, reply(TEXT)), interruption(1.0)))
    assert len(check_words(history(WHOLE, *twice))) == 2


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
            loop().hold_up(hold_ups_s.pop())
            for _ in range(turns):
                await asyncio.sleep(0)
        await push_frame(service, frame, *rest)

    monkeypatch.setattr(VoiceAgentTTSService, "push_frame", push_late)
    check_words(cut(reply(TEXT), WHOLE, after_s, loudspeaker=Loudspeaker(catches_up=catches_up)))


def test_an_interruption_does_not_wait_for_a_machine_without_time() -> None:
    """Between two reports of the transport, the event loop turns a few times only."""

    async def starve(_: Conversation) -> None:
        for _ in range(1_000):
            loop().hold_up(0.002)
            await asyncio.sleep(0)

    outcome = history(WHOLE, (0.0, reply(TEXT)), interruption(1.0), (0.0, starve))
    assert 1.0 < outcome.played_samples[0] / SAMPLE_RATE_HZ < 2.0


@pytest.mark.parametrize("passed_on", [0, 8])
@pytest.mark.parametrize("after_s", [0.07, 1.97])
@pytest.mark.parametrize("are_estimates", [False, True])
def test_an_interruption_from_behind_the_service_ends_the_history(
    are_estimates: bool, after_s: float, passed_on: int
) -> None:
    """Other processors may be between the one that interrupts, such as a gate, and the service."""
    between = [Passing() for _ in range(passed_on + 1)]
    spoken = replace(estimated(900), moved_after_s=0.25) if are_estimates else WHOLE
    acts = (
        (0.0, reply(TEXT)),
        (after_s, lambda _: between[-1].broadcast_interruption()),
        (2.0, sentence("x y z")),
        (1.0, []),
    )
    outcome = history(THREE_WORDS, *acts, first=[spoken], between=between)
    starts_ms = spoken.true_ms or range(0, WORDS * WORD_MS, WORD_MS)
    said = heard(outcome.played_samples[0], starts_ms)
    assert outcome.messages == [" ".join("w" * said), "x y z"]


@pytest.mark.parametrize("after_s", [0.3, 1.05, 1.4, 1.48, 1.6, 1.65])
def test_words_that_are_on_their_way_to_the_listener_are_not_heard(after_s: float) -> None:
    """Also those of the last 0.4 s of a reply, of which no more is played."""
    latency_s, starts_ms = 0.4, range(0, FEW * WORD_MS, WORD_MS)
    outcome = cut(reply(FEW_TEXT), whole(FEW), after_s, output_latency_s=latency_s)
    played_samples = max(outcome.played_samples[0], round(after_s * SAMPLE_RATE_HZ))
    count = heard(played_samples, starts_ms, latency_s)
    assert [len(message.split()) for message in outcome.messages] == [count] * bool(count)


def test_a_reply_that_is_too_short_to_be_heard_is_a_message_of_its_own() -> None:
    """All its audio is shorter than what a listener needs; the pipeline's end waits no longer."""

    async def run() -> list[str]:
        spoken = script(audio_steps(0.0, 100, 3), word_steps(AHEAD_S, words=3))
        async with scripted(spoken, output_latency_s=0.4) as talk:
            await talk.say(reply("w w w"))
            talk.server.script = script(audio_steps(0.0, 100, 1), word_steps(AHEAD_S, words=1))
            await talk.say(reply("w"))
            await asyncio.sleep(4.0)
            messages = talk.messages
            await talk.push(EndFrame())
            async with asyncio.timeout(5.0):
                await talk.ended
            return messages

    assert run_scripted(run()) == ["w w w", "w"]


@pytest.mark.parametrize(
    ("loudspeaker", "lost_s"),
    [(Loudspeaker(80), 0.0), (Loudspeaker(40, deaf=HoldUp(1.0, 1.2)), 1.2)],
    ids=["long chunks", "writing fails for a while"],
)
def test_speech_goes_on(loudspeaker: Loudspeaker, lost_s: float) -> None:
    """Whatever the length of the chunks, and after audio for which no report comes."""
    spoken = script(audio_steps(0.0, 80), word_steps(AHEAD_S))
    outcome = cut(reply(TEXT), spoken, 5.0, loudspeaker=loudspeaker)
    check_words(outcome)
    assert outcome.played_samples[0] > (5.0 - lost_s - 0.1) * SAMPLE_RATE_HZ


# Words that had left by estimates are taken back.

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
    outcome = cut(reply(TEXT), spoken, 2.02, output_latency_s=latency_s)
    truth = heard(outcome.played_samples[0], spoken.true_ms, latency_s)
    assert [len(message.split()) for message in outcome.messages] == [truth]


def test_a_reply_of_which_nothing_was_heard_leaves_no_message() -> None:
    """Its first words had left by estimates."""
    late_ms = tuple(index * WORD_MS + 2_000 for index in range(WORDS))
    assert cut(reply(TEXT), replace(estimated(0), true_ms=late_ms), 0.7).messages == []


@pytest.mark.parametrize("last_ms", [1_499, 1_500, 2_000])
def test_a_reply_that_was_heard_to_its_end_stays_whole(last_ms: int) -> None:
    """Also if an aligner finds its last word at the end of the audio, or behind it."""
    spoken = replace(aligned(FEW), true_ms=(0, 310, 620, 930, last_ms))
    assert cut(reply("a b c d e"), spoken, 4.0).messages == ["a b c d e"]


def aligned(words: int, end_s: float = 0.0, lead_ms: int = 0) -> Script:
    """Words whose times an aligner finds; all of them are right, and `lead_ms` silence is ahead."""
    starts_ms = tuple(lead_ms + index * WORD_MS for index in range(words))
    steps = [Step(max(0.0, ms / 1000 - AHEAD_S), words_ms=(ms,)) for ms in starts_ms]
    spoken = script(audio_steps(0.0, 100, words), steps, [Step(end_s)])
    return replace(spoken, true_ms=starts_ms, moved_after_s=0.0)


FILLER = [TTSSpeakFrame("v w x y z", append_to_context=False)]


def test_an_utterance_may_stay_out_of_the_history() -> None:
    """As Pipecat Flows' `tts_say` asks for with `append_text_to_context=False`."""
    acts = (0.0, FILLER), (2.0, [TTSSpeakFrame("x y z")]), (2.0, [])
    outcome = history(THREE_WORDS, *acts, first=[aligned(5)])
    assert outcome.messages == ["x y z"] and len(outcome.played_samples) == 2


@pytest.mark.parametrize(
    ("loss_s", "then", "second", "latency_s"),
    [
        (None, FILLER, (aligned(5), 4.0), 0.0),
        (None, FILLER, (whole(5), 4.0), 0.3),
        (None, reply("x"), (aligned(1, lead_ms=150), 0.1), 0.25),
        (1.45, FILLER, (aligned(5), 4.0), 0.0),
    ],
    ids=["a filler", "by an engine", "a reply cut early", "lost before its end"],
)
def test_a_reply_that_was_heard_stays_whatever_is_cut_behind_it(
    loss_s: float | None, then: list[Frame], second: tuple[Script, float], latency_s: float
) -> None:
    """No word of what follows has left for the history when the user speaks."""
    first, (following, after_s) = aligned(5, 9.0 if loss_s else 0.0), second
    loss = [] if loss_s is None else [(loss_s, lose_connection), (1.5, [])]
    outcome = history(
        following,
        (0.0, reply("a b c d e")),
        *(loss or [(2.5, [])]),
        (0.0, then),
        interruption(after_s),
        first=[first],
        output_latency_s=latency_s,
    )
    assert outcome.messages == ["a b c d e"]


@pytest.mark.parametrize(
    ("first", "frames", "then", "after_s", "left"),
    [
        (aligned(5), [*reply("a b c d e"), TTSSpeakFrame("x y z")], aligned(3, lead_ms=100), 1.7,
         "a b c d e"),
        (replace(script(audio_steps(0.0, 100, 4), [Step(0.0, words_ms=(300, 600, 900))]),
                 true_ms=(300, 600, 900), moved_after_s=0.0),
         [*reply("w w w"), TTSSpeakFrame("w w w w")], aligned(4, lead_ms=300), 1.55, "w w w"),
        (estimated(250, 1.2, 6), reply("a b c d e f"), THREE_WORDS, 1.62, "a b c d e"),
        (estimated(250, 1.2, 6), [*reply("a b c d e f"), TTSSpeakFrame("x y z")], THREE_WORDS, 1.62,
         "a b c d e"),
    ],
    ids=["before a first word", "equal texts", "its end", "its end before another"],
)  # fmt: skip
def test_words_are_taken_back_from_their_own_message(
    first: Script, frames: list[Frame], then: Script, after_s: float, left: str
) -> None:
    """The audio of an utterance that is queued behind it may have left before its own was heard."""
    assert cut(frames, then, after_s, first=[first]).messages == [left]


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
    assert history(THREE_WORDS, *acts, first=[estimated(900)]).messages == ["w w w w", *said]


@pytest.mark.parametrize(
    ("first", "begin"),
    [
        (Script((), end_s=0.0, failure=OverloadedError("it is full", retry_after_ms=100)), ""),
        (replace(whole(2), end_s=0.3, failure=EngineError("it has ended")), "a a "),
    ],
    ids=["refused", "resumed"],
)
def test_words_are_taken_back_by_the_times_of_their_own_context(first: Script, begin: str) -> None:
    """A turn whose first context has ended is spoken by another one, from its start or later."""
    after_s = 2.02 + 0.3 * len(begin.split())
    outcome = cut(reply(begin + TEXT), estimated(900), after_s, first=[first])
    assert outcome.messages == [begin + "w w w w"]


def test_words_are_taken_back_although_the_connection_was_lost() -> None:
    """By the times that were known until then; another context speaks on behind them."""
    true_ms = (0, 300, 600, 900, 2_100, 2_400, 2_700, 3_000)
    acts = (0.0, reply(TEXT)), (1.6, lose_connection), interruption(0.1)
    outcome = history(estimated(900), *acts, first=[replace(aligned(8), true_ms=true_ms)])
    assert outcome.messages == ["w w w w"]


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
    start, *rest = reply(TEXT)
    after_s, first = (3.12, [whole(3)]) if is_speech else (2.02, [])
    outcome = cut([start, *said, *rest], estimated(900), after_s, first=first, **options)
    assert outcome.messages == [left]


def test_a_correction_does_not_overtake_the_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy program passes the interruption on late, when words have left by estimates."""

    async def wait(service: VoiceAgentTTSService) -> None:
        await asyncio.sleep(0.02)

    monkeypatch.setattr(VoiceAgentTTSService, "stop_all_metrics", wait)
    assert cut(reply(TEXT), estimated(900), 1.9).messages == ["w w w w"]


def test_a_reply_that_begins_while_an_interruption_is_handled_is_one_utterance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In direct mode; the interruption ends a reply that has no text yet."""
    go_on = VoiceAgentTTSService._go_on_after_interruption
    begin, *rest = reply("a b. ", "c d. ", "e f.")

    async def delayed(service: VoiceAgentTTSService) -> None:
        await service.queue_frame(begin)
        await go_on(service)

    monkeypatch.setattr(VoiceAgentTTSService, "_go_on_after_interruption", delayed)
    waiting: list[Frame] = [LLMFullResponseStartFrame(), InterruptionFrame()]
    acts = [(0.1, lambda talk, each=each: talk.push(each)) for each in [*waiting, *rest]]
    outcome = history(whole(6, end_s=1.0), *acts, (5.0, []), enable_direct_mode=True)
    assert (outcome.server.texts[-1], outcome.messages) == ("a b. c d. e f.", ["a b. c d. e f."])


# What is not interrupted, not spoken, or another's.


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

    utterance = TTSSpeakFrame("a b c.")
    utterance.interruptible = False
    acts = (
        (0.0, lambda talk: talk.push(*begin)),
        (0.1, lambda talk: talk.service.queue_frame(utterance)),
        (0.01 + after_s, lambda talk: talk.push(InterruptionFrame())),
        (2.5, reply("x y z.")),
        (5.0, []),
    )
    outcome = history(THREE_WORDS, *acts, text_transforms=[("*", transform)])
    assert outcome.messages == [*left, "x y z."]


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.2, 0.29])
def test_an_utterance_that_is_not_interrupted_before_its_first_audio_is_in_the_history(
    after_s: float,
) -> None:
    """Once, and it leaves nothing to the message behind it."""
    utterance = TTSSpeakFrame("a b c.")
    utterance.interruptible = False
    acts = (
        (0.1, lambda talk: talk.push(utterance)),
        (after_s, lambda talk: talk.push(InterruptionFrame())),
        (3.0, reply("x y z.")),
        (3.0, [InterruptionFrame()]),
        (1.0, []),
    )
    slow = script([Step(0.3)], [replace(step, at_s=0.3) for step in THREE_WORDS.steps])
    assert history(slow, *acts).messages == ["a b c.", "x y z."]


@pytest.mark.parametrize("known", [0, 10])
def test_an_utterance_that_is_not_interrupted_keeps_its_white_space(known: int) -> None:
    """Words that wait for their audio, and those that come later, belong to one message."""
    utterance = TTSSpeakFrame("a b c d e f g h i j")
    utterance.interruptible = False
    spoken = script(audio_steps(0.0, 80, 10), word_steps(AHEAD_S, known, 10), [Step(3.0)])
    said = history(spoken, (0.0, [utterance]), interruption(0.75), (5.0, [])).messages
    assert len(said) == 2 and " ".join(said) == utterance.text


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
        ("[|#a.|#b.|#好。|]", "a. b.好。"),
    ],
)
def test_texts_of_others_in_a_reply_are_heard_in_order(said: str, left: str, mode: str) -> None:
    """Behind what the LLM has written, words apart; an utterance is behind the reply."""
    acts = (0.0, frames_of(said)), (7.0, [])
    outcome = history(whole(6), *acts, text_aggregation_mode=mode)
    assert outcome.messages == [left]


@pytest.mark.parametrize(
    ("said", "left", "texts"),
    [
        ("[|a b|#c d.| e.|]", "c d. a b e.", ["c d. a b e."]),
        ("[|a b|!c d.| e.|]", "c d. a b e.", ["a b e.", "c d."]),
        ("[|a|. b|.|]", "a. b.", ["a. b."]),
        ("[|a b c|]", "a b c", ["a b c"]),
    ],
)
def test_an_aggregator_of_pipecats_divides_the_text(said: str, left: str, texts: list[str]) -> None:
    """Its incomplete sentence is heard behind the texts of others, and no words run together."""
    acts = (0.0, frames_of(said)), (7.0, [])
    outcome = history(THREE_WORDS, *acts, text_aggregator=SimpleTextAggregator())
    assert outcome.messages == [left] and sorted(outcome.server.texts) == texts


PARAGRAPHS = "Heading here\n\nThen the second.\n\nAnd a third."


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("[|Heading here|\n\nThen the second.|\n\nAnd a third.|]",
         {"text_aggregator": SimpleTextAggregator()}),
        ("[|Heading here|#\n\nThen the second.|\n\nAnd a third.|]", {}),
        ("[|Heading here\n\nThen the second.\n|\nAnd a third.|]", {}),
    ],
    ids=["sentences", "another's text", "clauses"],
)  # fmt: skip
def test_line_breaks_between_pieces_reach_the_server(said: str, options: dict[str, Any]) -> None:
    """They end a paragraph without a mark; Pipecat removes them where a piece begins."""
    outcome = history(whole(9), (0.0, frames_of(said)), (7.0, []), **options)
    assert (outcome.server.texts, outcome.messages) == ([PARAGRAPHS], [PARAGRAPHS])


def test_an_utterance_in_a_reply_has_no_line_break_of_the_reply() -> None:
    """The clause before it has begun with one."""
    said = frames_of("[|Well, yes.\n\nNo. |!Please wait.|]")
    texts = history(whole(3), (0.0, said), (5.0, [])).server.texts
    assert texts == ["Well, yes.\n\nNo. ", "Please wait."]


def test_words_before_and_after_a_long_pause_of_the_llm_are_apart() -> None:
    """Pipecat has ended the audio context, and begins another one for the rest."""
    begin, *rest = frames_of("[|a b.|\n\nc |d.|]")
    spoken = replace(whole(2), end_s=60.0)
    acts = (0.0, [begin, rest.pop(0)]), (20.0, rest), (1.0, [])
    outcome = history(spoken, *acts, text_aggregation_mode="token", response_timeout_s=3.0)
    assert outcome.server.texts[0].split() == ["a", "b.", "c", "d."]


@pytest.mark.parametrize("mode", ["sentence", "token"])
@pytest.mark.parametrize("pause_s", [2.0, 6.5, 12.0])
@pytest.mark.parametrize(("after_s", "left"), [(0.6, "a b c. d e"), (3.0, "a b c. d e f.")])
def test_a_reply_goes_on_behind_a_pause_of_the_llm(
    pause_s: float, after_s: float, left: str, mode: str
) -> None:
    """Its message is cut as exactly as one without."""
    spoken = [
        THREE_WORDS.steps[0],
        Step(pause_s + 0.1, samples=21_600, words_ms=(900, 1_200, 1_500)),
    ]
    begin, *rest = frames_of("[|a b c. |d e f. |]")
    acts = (
        (0.0, [begin, rest.pop(0)]),
        (pause_s, lambda talk: talk.push(*rest)),
        interruption(after_s),
        (1.0, []),
    )
    outcome = history(script(spoken), *acts, text_aggregation_mode=mode)
    assert outcome.messages == [left] and not outcome.errors


@pytest.mark.parametrize(
    "first",
    [
        replace(whole(3), idles=True),
        script([THREE_WORDS.steps[0],
                Step(11.1, samples=21_600, words_ms=(900, 1_200, 1_500))]),
    ],
    ids=["ended", "waiting"],
)  # fmt: skip
@pytest.mark.parametrize(("after_s", "left"), [(0.5, "d e"), (3.0, "d e f.")])
def test_a_reply_goes_on_behind_an_utterance_in_a_long_pause_of_the_llm(
    first: Script, after_s: float, left: str
) -> None:
    """The server's context has ended for want of text, or not; the message is cut as exactly."""
    begin, *rest = frames_of("[|a b c. |d e f. |]")
    acts = (
        (0.0, [begin, rest.pop(0)]),
        (8.0, [TTSSpeakFrame("x y z")]),
        (3.0, rest),
        interruption(after_s),
        (1.0, []),
    )
    outcome = history(whole(3), *acts, first=[first])
    assert outcome.messages == [f"a b c. x y z {left}"] and not outcome.errors


@pytest.mark.parametrize("text", ["a b c. ", ""])
def test_a_reply_whose_end_is_missing_holds_nothing_back_for_long(text: str) -> None:
    """An utterance behind it is heard."""

    async def run() -> float:
        async with scripted(THREE_WORDS) as talk:
            await talk.push(LLMFullResponseStartFrame(), LLMTextFrame(text))
            await asyncio.sleep(1.0)
            begun_s = loop().time()
            await talk.push(TTSSpeakFrame("x y z"))
            await until(lambda: "x y z" in talk.server.texts[-1], "it is sent")
            least = 30_000 if text else 10_000
            await until(lambda: sum(talk.loudspeaker.played_samples) > least, "it is heard")
            return loop().time() - begun_s

    assert run_scripted(run()) < 7.0


@pytest.mark.parametrize("text", ["a b c. ", "a b c", ""])
def test_a_pipeline_that_ends_within_a_reply_says_what_was_written(text: str) -> None:
    """It waits for no end of the reply."""

    async def run() -> tuple[list[str], float]:
        async with scripted(THREE_WORDS) as talk:
            await talk.push(LLMFullResponseStartFrame(), LLMTextFrame(text))
            await asyncio.sleep(0.3)
            begun_s = loop().time()
            await talk.push(EndFrame())
            await talk.ended
            return talk.messages, loop().time() - begun_s

    messages, took_s = run_scripted(run())
    assert messages == [text.strip()] * bool(text) and took_s < 5.0


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
    assert history(THREE_WORDS, *acts, skip_text_types=["code"]).messages == left


def test_a_reply_that_is_not_spoken_splits_no_word_of_another_one() -> None:
    """Two LLMs write at a time."""
    begin, text, end = reply("Tues")
    rest, (other_begin, *other) = LLMTextFrame("day is fine. "), unspoken("x=1")
    frames = [begin, text, other_begin, rest, *other, end]
    outcome = history(THREE_WORDS, (0.0, frames), (5.0, []))
    assert outcome.messages == ["Tuesday is fine. x=1"]


@pytest.mark.parametrize("latency_s", [0.0, 0.6])
def test_a_function_call_stands_behind_what_was_said_before_it(latency_s: float) -> None:
    """Also while that is on its way to the listener, and its result runs the LLM."""
    call = {"function_name": "look", "tool_call_id": "1", "arguments": {}}
    called = [FunctionCallInProgressFrame(**call), FunctionCallResultFrame(**call, result="it")]

    async def run() -> list[str]:
        async with scripted(THREE_WORDS, output_latency_s=latency_s) as talk:
            await talk.say([*reply("a b c."), *called])
            await asyncio.sleep(5.0)
            return [str(each.get("content")) for each in cast("list[Any]", talk.context.messages)]

    assert run_scripted(run()) == ["a b c.", "None", '"it"']


@pytest.mark.parametrize("text", ["👍", "..."])
def test_a_reply_with_nothing_to_speak_is_committed(text: str) -> None:
    """It is no error, and the next reply is spoken as ever."""
    acts = (0.0, reply(text)), (1.0, reply("a b c")), (2.0, [])
    outcome = history(THREE_WORDS, *acts, first=[Script((), end_s=0.1)])
    assert outcome.messages == [text, "a b c"] and not outcome.errors


def test_without_word_times_a_whole_turn_is_committed() -> None:
    """Of a server that has none, no text is lost."""
    silent_words = Script((Step(0.0, samples=SAMPLE_RATE_HZ),), end_s=0.1)
    assert history(silent_words, (0.0, reply("a b c.")), (3.0, [])).messages == ["a b c."]


def test_a_pronunciation_is_said_and_the_history_has_the_word() -> None:
    """As with Pipecat's own services; markup is on for it."""
    transform = VoiceAgentTTSService.pronunciation_transform_ipa({"Metformin": "mɛtˈfɔɹmɪn"})
    acts = (0.0, reply("Take ", "Metformin, ", "now.")), (3.0, [])
    outcome = history(THREE_WORDS, *acts, text_transforms=[("*", transform)])
    assert outcome.messages == ["Take Metformin, now."]
    assert '<phoneme alphabet="ipa" ph="mɛtˈfɔɹmɪn">' in outcome.server.texts[0]
    assert outcome.server.opened[0].markup


@pytest.mark.parametrize("spoken_chars", [3, 5, 8])
def test_words_of_a_text_that_is_lost_are_in_the_history_once(spoken_chars: int) -> None:
    """As the LLM wrote them, also those of which the server had sent no time."""

    async def unmarked(text: str, _: str) -> str:
        return text.replace("*", "")

    failure = EngineError("lost", code=ErrorCode.TEXT_LOST, spoken_chars=spoken_chars)
    lost = Script((Step(0.0, samples=21_600, words_ms=(0,)),), end_s=0.1, failure=failure)
    acts = (0.0, reply("*a* b c, d e *f*.")), (6.0, [])
    outcome = history(whole(6), *acts, first=[lost], text_transforms=[("*", unmarked)])
    assert outcome.messages == ["*a* b c, d e *f*."] and not outcome.errors
    assert outcome.server.texts[-1] == "a b c, d e f."[spoken_chars:]


# Tokens that are passed on.


def written(text: str, token_s: float, thinking_s: float = 0.0) -> list[tuple[float, list[Frame]]]:
    """A reply whose tokens, of up to three letters, come one by one, after the LLM has thought."""
    tokens = re.findall(r"\s*\w{1,3}|\s*[^\w\s]+|\s+", text)
    return [
        (0.0, [LLMFullResponseStartFrame()]),
        (thinking_s, []),
        *((token_s, [LLMTextFrame(token)]) for token in tokens),
        (0.0, [LLMFullResponseEndFrame()]),
    ]


async def write(talk: Conversation, frames: list[tuple[float, list[Frame]]]) -> None:
    """Let `frames` enter the service, each so many seconds after the one before."""
    for wait_s, some in frames:
        await asyncio.sleep(wait_s)
        await talk.push(*some)


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
        spoken = spoken_while_written(LONG, token_s)
        async with scripted(spoken, text_aggregation_mode="token") as talk:
            writing = asyncio.create_task(write(talk, written(LONG, token_s)))
            await talk.loudspeaker.begun()
            await asyncio.sleep(15.0 if cut_s is None else cut_s)
            writing.cancel()
            if cut_s is not None:
                await talk.push(InterruptionFrame())
                await asyncio.sleep(0.5)
            return talk.messages, talk.loudspeaker.played_samples[0]

    messages, played_samples = run_scripted(run())
    count = heard(played_samples, range(0, 11 * WORD_MS, WORD_MS))
    assert messages == [LONG[: split_words(LONG)[count - 1].char_end]]
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
    last = Step(7.2, samples=WORD_MS * SAMPLE_RATE_HZ // 1000, words_ms=(2 * WORD_MS,))
    tokens = [LLMTextFrame(token) for token in ("One", " moment", " please")]
    outcome = history(
        Script((*whole(2).steps, last), end_s=7.3),
        (0.0, [LLMFullResponseStartFrame(), *tokens]),
        (6.8, [then()]),
        (5.0, []),
        text_aggregation_mode="token",
        response_timeout_s=3.0,
    )
    assert outcome.messages == [left]
    assert sum(outcome.played_samples) >= words * WORD_MS * SAMPLE_RATE_HZ // 1000


def test_tokens_that_leave_when_the_next_reply_has_begun_are_joined() -> None:
    """The words before them are still being played while the LLM thinks about that."""
    text = "Monday and Tuesday and Thursday."
    starts_ms = [1_000 * index for index in range(5)]
    steps = [Step(1.0, samples=SAMPLE_RATE_HZ, words_ms=(start,)) for start in starts_ms]
    both = written(text, 0.1) + written(text, 0.1, thinking_s=2.0)
    outcome = history(
        Script(tuple(steps), end_s=3.0),
        (0.0, lambda talk: write(talk, both)),
        (12.0, []),
        aggregate_sentences=False,
    )
    assert outcome.messages == [text, text]
