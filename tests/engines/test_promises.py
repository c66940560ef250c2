"""What every engine of whole segments promises: order, credit, fairness, cancels and errors."""

import numpy as np
import pytest

from testbed.kokoro import QUICK, THOROUGH
from testbed.segment_driving import (
    Driver,
    Start,
    append,
    contexts_of,
    credit,
    of_type,
    pcm_of,
    samples_of,
    words_of,
)
from voiceagent_tts.core import SAMPLE_RATE_HZ, WarningCode
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.commands import Cancel, SpeechOptions
from voiceagent_tts.seam.engine import Engine
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Failed, SegmentEnd, Warned, Words
from voiceagent_tts.text.words import split_words

TEXT = "Hello there, agents."
LONG_TEXT = "This is one sentence among many that make a text long. " * 12
FIRST_CHUNK_S = {"espeak": 0.08, "hibari": 0.3, "kokoro": 1.5, "pocket": 0.08}

every = pytest.mark.parametrize("engine", ["espeak", "hibari", "pocket", QUICK], indirect=True)
"""Also Kokoro, in each run of the tests."""


@every
def test_it_is_an_engine(driver: Driver) -> None:
    """It implements `Engine`, takes whole segments, and tells what its voices are."""
    engine: Engine = driver.engine
    capabilities = engine.capabilities
    assert capabilities.text_feeding == ("segment",) and "en" in capabilities.languages
    assert {voice.name for voice in capabilities.voice_details} <= {*capabilities.voices}
    assert capabilities.has_native_speed == capabilities.reads_ipa == capabilities.has_native_words
    assert engine.metrics == {} and engine.rows_used == 0 and engine.step() is None


@every
def test_a_whole_text_gives_words_then_audio_then_the_end(driver: Driver) -> None:
    """Every word comes once, before its audio; segment and context end at the same sample."""
    events = driver.run(driver.submit(1, TEXT), credit(1))
    has_words = driver.engine.capabilities.has_native_words
    assert isinstance(events[0], Words if has_words else AudioStep)
    assert [word.word for word in words_of(events, 1)] == (split_words(TEXT) if has_words else [])
    samples = samples_of(events, 1)
    assert events[-2:] == [SegmentEnd(1, len(TEXT), samples), Done(1, samples)]
    assert 0.5 < samples / SAMPLE_RATE_HZ < 3.0
    assert driver.engine.rows_used == 0


def test_segments_follow_each_other_on_one_clock(driver: Driver) -> None:
    """Words of a later segment count from the context's first sample and its first character."""
    first, second = "Hello there. ", "How are you?"
    events = driver.run(driver.submit(1, first, more=True), credit(1))
    (end,) = of_type(SegmentEnd, events)
    assert (end.char_end, end.end_sample) == (len(first), samples_of(events, 1))
    events += driver.run(append(1, second, len(first), more=True))
    events += driver.run(append(1, "", len(first + second)))
    assert events[-1] == Done(1, samples_of(events, 1)) and events[-1].end_sample > end.end_sample
    if driver.engine.capabilities.has_native_words:
        words = words_of(events, 1)
        assert [word.word for word in words] == split_words(first + second)
        pause = words[2].start_sample - words[1].end_sample
        assert words[2].start_sample >= end.end_sample and pause > 0.15 * SAMPLE_RATE_HZ


def test_a_sentence_pauses_only_where_more_may_follow(driver: Driver) -> None:
    """The last sentence has no pause after it, which would only delay the context's end."""
    if not driver.engine.capabilities.has_pauses:
        return
    sizes = [
        samples_of(driver.run(driver.submit(number, text, more=more), credit(number)), number)
        for number, (text, more) in enumerate(
            [("Hello there.", False), ("Hello there.", True), ("Hello there", True)]
        )
    ]
    last, followed, unfinished = sizes
    assert min(followed - last, followed - unfinished) > 0.15 * SAMPLE_RATE_HZ


@every
def test_a_line_break_is_a_pause(driver: Driver) -> None:
    plain, broken, marked = (
        driver.speak(f"one two{between}three four", seed=1) for between in (" ", "\n", ", ")
    )
    if driver.engine.capabilities.has_native_words:
        assert longest_pause_ms(broken) > longest_pause_ms(plain) + 50
    else:  # random weights make no pause: the model was given a comma
        assert broken == marked != plain


def longest_pause_ms(pcm: bytes) -> int:
    """The longest time within speech in which it is 34 dB quieter than at its loudest."""
    levels = np.abs(np.frombuffer(pcm, "<i2").astype(float))
    tens_of_ms = levels[: len(levels) // 240 * 240].reshape(-1, 240).max(axis=1)
    loud = np.flatnonzero(tens_of_ms > 0.02 * tens_of_ms.max())
    return 10 * int(np.diff(loud).max() - 1)


def test_a_row_without_credit_is_not_stepped(driver: Driver) -> None:
    assert driver.run(driver.submit(1, TEXT)) == []
    assert driver.engine.step() is None
    events = driver.run(credit(1, 1_000))
    assert samples_of(events, 1) == 1_000
    if driver.engine.capabilities.has_native_words:
        words = [word.word for word in words_of(events, 1)]
        assert len(words) >= 2 and words == split_words(TEXT)[: len(words)]
    assert driver.run(credit(1, 900)) == []
    events += driver.run(credit(1, 1_001))
    assert samples_of(events, 1) == 1_001
    assert isinstance(driver.run(credit(1))[-1], Done)


@every
def test_the_first_chunk_is_short_and_none_is_long(driver: Driver, engine: str) -> None:
    """However long the text; the first step sends it."""
    (sent,) = of_type(AudioStep, driver.step(driver.submit(1, LONG_TEXT), credit(1)))
    assert sent.rows[0].chunk.samples <= FIRST_CHUNK_S[engine] * SAMPLE_RATE_HZ
    (later,) = of_type(AudioStep, driver.step())
    assert 0 < later.rows[0].chunk.samples < 2.6 * SAMPLE_RATE_HZ


def test_a_long_text_does_not_delay_another_contexts_first_audio(driver: Driver) -> None:
    driver.step(driver.submit(1, LONG_TEXT), credit(1))
    assert 2 in contexts_of(driver.step(driver.submit(2, TEXT), credit(2)))
    driver.run(Cancel(1))
    assert {event.context for event in of_type(Done, driver.events)} == {2}


def test_new_contexts_are_served_in_the_order_in_which_they_came(driver: Driver) -> None:
    """The oldest context without audio is spoken first, and a file after all listeners."""
    contexts = [3, 9, 1]
    file = driver.submit(2, TEXT, options=SpeechOptions(is_batch=True))
    submits = [driver.submit(context, TEXT) for context in contexts]
    order = contexts_of(driver.run(file, *submits, *map(credit, (2, 1, 3, 9))))
    assert list(dict.fromkeys(order)) == [*contexts, 2]


def test_the_row_whose_playout_ends_first_is_spoken_first(driver: Driver) -> None:
    driver.run(*(driver.submit(i, TEXT, more=True) for i in (1, 2)), credit(1), credit(2))
    more = (append(i, " And more of it.", len(TEXT)) for i in (1, 2))
    events = driver.run(*more, credit(1, playout_end=9.0), credit(2, playout_end=3.0))
    assert contexts_of(events)[0] == 2


def test_rows_on_two_threads_sound_as_on_one(start: Start, engine: str) -> None:
    if engine == "espeak":  # it has one thread, and its samples follow from what it said before
        return
    alone, together = start(threads=1), start(threads=2)
    commands = [alone.submit(i, TEXT, options=SpeechOptions(seed=i)) for i in (1, 2, 3)]
    spoken = [each.run(*commands, *map(credit, (1, 2, 3))) for each in (alone, together)]
    for context in (1, 2, 3):
        first, second = (pcm_of(events, context) for events in spoken)
        assert first == second != b""
        assert words_of(spoken[0], context) == words_of(spoken[1], context)


@pytest.mark.parametrize(
    ("engine", "steps"),
    [
        pytest.param("kokoro", 1, marks=QUICK.marks),
        *((engine, steps) for steps in (1, 2, 3) for engine in ("espeak", "hibari", "pocket")),
        *(pytest.param("kokoro", steps, marks=THOROUGH.marks) for steps in (2, 3)),
    ],
    indirect=["engine"],
)
def test_a_cancel_frees_the_row_before_the_next_part(driver: Driver, steps: int) -> None:
    driver.send(driver.submit(1, LONG_TEXT), credit(1))
    for _ in range(steps):
        driver.engine.step()
    assert driver.step(Cancel(1)) == [Cancelled(1)]
    assert driver.engine.rows_used == 0 and driver.engine.step() is None
    assert contexts_of(driver.step(driver.submit(2, TEXT), credit(2))) == [2]


def test_cancel_is_always_answered(driver: Driver) -> None:
    """A cancel is answered for unknown, waiting and finished contexts, and a second time."""
    assert driver.run(Cancel(7)) == [Cancelled(7)]
    submit = driver.submit(1, TEXT)
    assert driver.run(submit, Cancel(1), Cancel(1)) == [Cancelled(1), Cancelled(1)]
    driver.run(driver.submit(2, "Hi."), credit(2))
    assert driver.run(Cancel(2)) == [Cancelled(2)]
    driver.run(driver.submit(3, TEXT), credit(3, 1_000))
    assert driver.run(Cancel(3), credit(3)) == [Cancelled(3)]
    assert driver.engine.rows_used == 0


def test_an_instruction_is_ignored_with_one_warning(driver: Driver) -> None:
    fields = {"options": SpeechOptions(instruct="Whisper."), "more": True}
    events = driver.run(driver.submit(1, "Hi.", **fields), append(1, " Yes.", 3), credit(1))
    assert [event.code for event in of_type(Warned, events)] == [WarningCode.INSTRUCT_IGNORED]
    assert isinstance(events[0], Warned) and isinstance(events[-1], Done)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"voice": "nobody"}, ErrorCode.INVALID_VOICE),
        ({"options": SpeechOptions(speed=0.1)}, ErrorCode.INVALID_PARAM),
        ({"options": SpeechOptions(speed=float("nan"))}, ErrorCode.INVALID_PARAM),
    ],
)
def test_a_wrong_request_fails_alone(driver: Driver, fields: dict, code: ErrorCode) -> None:
    if "options" in fields and not driver.engine.capabilities.has_native_speed:
        return
    wrong = driver.submit(1, TEXT, **fields)
    events = driver.run(wrong, driver.submit(2, "Hi."), credit(1), credit(2))
    (failed,) = of_type(Failed, events)
    assert (failed.context, failed.code) == (1, code) and "got" in failed.message
    assert TEXT not in failed.message
    assert [event.context for event in of_type(Done, events)] == [2]
    assert driver.engine.rows_used == 0


def test_a_full_engine_refuses_and_recovers(start: Start) -> None:
    driver = start(max_rows=2)
    assert driver.engine.capabilities.max_rows == 2
    driver.run(driver.submit(1, TEXT), driver.submit(2, TEXT))
    (failed,) = driver.run(driver.submit(3, TEXT))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.OVERLOADED
    assert failed.message.startswith("all 2 rows of ")
    assert driver.engine.rows_used == 2
    driver.run(Cancel(1))
    assert isinstance(driver.run(driver.submit(4, "Hi."), credit(4))[-1], Done)
