import pytest

from testbed.espeak_driving import UNLIMITED, of_type, pcm_of, words_of
from testbed.hibari_driving import Driver
from voiceagent_tts.core import SAMPLE_RATE_HZ, Reading, WarningCode
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.commands import Append, Cancel, Credit, Prepare, SpeechOptions, Submit
from voiceagent_tts.seam.engine import Engine
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Done,
    Failed,
    SegmentEnd,
    Warned,
    Words,
)
from voiceagent_tts.text.words import split_words

TEXT = "Hello there, I am one of the agents."
LONG_TEXT = "This is one sentence among many that make a text long. " * 20
LONG_SENTENCE = "It goes on, and on, and on, " * 8 + "until the end."


def submit(context: int, text: str = TEXT, *, more: bool = False, **options) -> Submit:
    """Open a context with the default voice in English."""
    fields = {"char_base": 0, "voice": "heart", "language": "en"} | options
    return Submit(context, text, more=more, **fields)


def credit(context: int, samples_wanted: int = UNLIMITED, playout_end: float = 0.0) -> Credit:
    """Credit for a context."""
    return Credit(context, playout_end, samples_wanted)


def test_it_is_an_engine(driver: Driver) -> None:
    """The engine implements `Engine` and reports its capabilities."""
    engine: Engine = driver.engine
    capabilities = engine.capabilities
    assert capabilities.engine == "test"
    assert capabilities.has_native_words and capabilities.has_native_speed
    assert capabilities.reads_ipa and capabilities.has_pauses
    assert capabilities.languages == ("en", "en-us")
    assert capabilities.voices == ("heart",)
    (details,) = capabilities.voice_details
    assert (details.language, details.gender) == ("en-us", "female")


def test_a_whole_text_gives_words_then_audio_then_the_end(driver: Driver) -> None:
    """Every word comes once, before its audio; segment and context end at the same sample."""
    events = driver.run(submit(1), credit(1))
    assert [type(event) for event in events[:2]] == [Words, AudioStep]
    words = words_of(events, 1)
    assert [word.word for word in words] == split_words(TEXT)
    assert all(word.is_exact for word in words)
    samples = len(pcm_of(events, 1)) // 2
    assert events[-2:] == [SegmentEnd(1, len(TEXT), samples), Done(1, samples)]
    assert 1.5 < samples / SAMPLE_RATE_HZ < 3.0
    assert driver.engine.rows_used == 0


def test_segments_follow_each_other_on_one_clock(driver: Driver) -> None:
    """Words of a later segment count from the context's first sample and its first character."""
    first, second = "Hello there. ", "How are you?"
    events = driver.run(submit(1, first, more=True), credit(1))
    (end,) = of_type(SegmentEnd, events)
    assert end.char_end == len(first)
    events += driver.run(Append(1, second, len(first), True, "en"))
    events += driver.run(Append(1, "", len(first + second), False, "en"))
    words = words_of(events, 1)
    assert [word.word for word in words] == split_words(first + second)
    pause = words[2].start_sample - words[1].end_sample
    assert words[2].start_sample == end.end_sample and pause > 0.2 * SAMPLE_RATE_HZ
    assert len(pcm_of(events, 1)) // 2 == events[-1].end_sample


def test_a_sentence_pauses_only_where_more_may_follow(driver: Driver) -> None:
    """The last sentence has no pause after it, which would only delay the context's end."""
    last = len(pcm_of(driver.run(submit(1, "Hello there."), credit(1)), 1))
    followed = len(pcm_of(driver.run(submit(2, "Hello there.", more=True), credit(2)), 2))
    unfinished = len(pcm_of(driver.run(submit(3, "Hello there", more=True), credit(3)), 3))
    assert followed - last > 0.15 * SAMPLE_RATE_HZ * 2
    assert unfinished < followed - 0.15 * SAMPLE_RATE_HZ * 2


def test_a_row_without_credit_is_not_stepped(driver: Driver) -> None:
    """Audio is sent as far as credit allows; the words of a piece are sent with its first part."""
    assert driver.run(submit(1)) == []
    assert driver.engine.step() is None
    events = driver.run(credit(1, 1_000))
    assert [word.word for word in words_of(events, 1)] == split_words(TEXT)
    assert len(pcm_of(events, 1)) == 2 * 1_000
    assert driver.run(credit(1, 900)) == []
    events += driver.run(credit(1, 1_001))
    assert len(pcm_of(events, 1)) == 2 * 1_001
    assert isinstance(driver.run(credit(1))[-1], Done)


def test_the_first_chunk_does_not_grow_with_the_text(driver: Driver) -> None:
    """One step makes the first fifth of a second, whatever follows it."""
    driver.send(submit(1, LONG_SENTENCE), credit(1))
    driver.engine.step()
    assert [type(event) for event in driver.events] == [Words, AudioStep]
    assert len(pcm_of(driver.events, 1)) < 2 * 0.3 * SAMPLE_RATE_HZ


def test_a_long_text_does_not_delay_another_contexts_first_audio(driver: Driver) -> None:
    """A context that is submitted while a long text is spoken gets its first audio next."""
    driver.send(submit(1, LONG_TEXT), credit(1))
    driver.engine.step()
    driver.send(submit(2), credit(2))
    driver.engine.step()
    assert {part.context for part in of_type(AudioStep, driver.events)[-1].rows} == {2}
    driver.run()
    assert driver.events[-1].context == 1 and isinstance(driver.events[-1], Done)


def test_batch_contexts_wait_for_listeners(driver: Driver) -> None:
    """A file gets no audio before a listener that has none."""
    driver.send(submit(1, options=SpeechOptions(is_batch=True)), submit(2), credit(1), credit(2))
    driver.engine.step()
    (step,) = of_type(AudioStep, driver.events)
    assert [part.context for part in step.rows] == [2]


def test_rows_on_two_threads_sound_as_on_one(driver: Driver) -> None:
    """Rows that are computed at the same time leave each other's audio unchanged."""
    two = Driver(threads=2)
    commands = [submit(i, options=SpeechOptions(seed=i)) for i in range(1, 4)]
    commands += map(credit, range(1, 4))
    alone, together = driver.run(*commands), two.run(*commands)
    two.engine.close()
    for context in range(1, 4):
        assert pcm_of(alone, context) == pcm_of(together, context)
        assert words_of(alone, context) == words_of(together, context)


def test_a_seed_makes_the_audio_reproducible(driver: Driver) -> None:
    """Equal seeds give equal samples, whatever the credit; another seed gives other noise."""
    first = driver.speak(TEXT, voice="heart", seed=5)
    assert driver.speak(TEXT, voice="heart", seed=5) == first
    assert driver.speak(TEXT, voice="heart", seed=6) != first
    assert driver.speak(TEXT, voice="heart") != first
    events = driver.run(submit(9, options=SpeechOptions(seed=5)))
    for end in range(1_000, len(first), 7_001):
        events += driver.run(credit(9, end))
    assert pcm_of(events, 9) == first


@pytest.mark.parametrize("steps", range(1, 5))
def test_a_cancel_frees_the_row_before_the_next_part(driver: Driver, steps: int) -> None:
    """Nothing follows for its context, and the engine has nothing left to do."""
    driver.send(submit(1, LONG_TEXT), credit(1))
    for _ in range(steps):
        driver.engine.step()
    before = len(driver.events)
    driver.send(Cancel(1))
    assert driver.engine.step() is None
    assert driver.events[before:] == [Cancelled(1)]
    assert driver.engine.rows_used == 0
    assert isinstance(driver.run(submit(2), credit(2))[-1], Done)


def test_cancel_is_always_answered(driver: Driver) -> None:
    """A cancel is answered for unknown, waiting and finished contexts, and a second time."""
    assert driver.run(Cancel(7)) == [Cancelled(7)]
    assert driver.run(submit(1), Cancel(1), Cancel(1)) == [Cancelled(1), Cancelled(1)]
    driver.run(submit(2), credit(2))
    assert driver.run(Cancel(2)) == [Cancelled(2)]


@pytest.mark.parametrize("text", [" ", "...", "\U0001f600", "\x00\x07", "---\n"])
def test_text_without_speech_ends_at_once(driver: Driver, text: str) -> None:
    """Text without speech needs no credit and does not advance the clock."""
    assert driver.run(submit(1, text)) == [SegmentEnd(1, len(text), 0), Done(1, 0)]
    driver.run(submit(2, "One.", more=True), credit(2))
    end = of_type(SegmentEnd, driver.events)[-1].end_sample
    events = driver.run(Append(2, text, 4, False, "en"))
    assert events == [SegmentEnd(2, 4 + len(text), end), Done(2, end)]


def test_a_context_may_be_opened_and_ended_without_text(driver: Driver) -> None:
    """Empty text does not become a segment."""
    assert driver.run(submit(1, "", more=True)) == []
    assert driver.run(Append(1, "", 0, False, "en")) == [Done(1, 0)]


def test_words_without_a_sound_are_reported_without_a_length(driver: Driver) -> None:
    """Each word comes once, in order, between its neighbours; the client can see the guess."""
    text = "Say 你好 now."
    words = words_of(driver.run(submit(1, text), credit(1)), 1)
    assert [word.word for word in words] == split_words(text)
    assert [word.is_exact for word in words] == [True, False, False, True]
    assert words[1].start_sample == words[1].end_sample == words[0].end_sample
    alone = driver.run(submit(2, "你好。"), credit(2))
    assert [word.end_sample for word in words_of(alone, 2)] == [0, 0]
    assert alone[-2:] == [SegmentEnd(2, 3, 0), Done(2, 0)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"readings": (Reading(0, 5, "Hello", "日"),)}, WarningCode.IPA_IGNORED),
        ({"options": SpeechOptions(instruct="Whisper.")}, WarningCode.INSTRUCT_IGNORED),
    ],
)
def test_what_cannot_be_done_is_said_once(driver: Driver, fields: dict, code: WarningCode) -> None:
    """The context is spoken all the same."""
    events = driver.run(submit(1, more=True, **fields), credit(1))
    events += driver.run(Append(1, " Again.", len(TEXT), False, fields.get("language", "en")))
    assert [event.code for event in of_type(Warned, events)] == [code]
    assert isinstance(events[-1], Done)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"voice": "nobody"}, ErrorCode.INVALID_VOICE),
        ({"options": SpeechOptions(speed=0.1)}, ErrorCode.INVALID_PARAM),
        ({"options": SpeechOptions(speed=float("nan"))}, ErrorCode.INVALID_PARAM),
    ],
)
def test_a_wrong_request_fails_alone(driver: Driver, options: dict, code: ErrorCode) -> None:
    """The failure names its context and frees its row; the other context is spoken."""
    events = driver.run(submit(1, **options), submit(2), credit(1), credit(2))
    (failed,) = of_type(Failed, events)
    assert (failed.context, failed.code) == (1, code)
    assert TEXT not in failed.message
    assert [event.context for event in of_type(Done, events)] == [2]
    assert driver.engine.rows_used == 0


def test_an_error_while_speaking_fails_one_context(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others continue, and the message has none of the text."""
    driver.run(submit(1, LONG_TEXT), credit(1, 5_000))
    row = next(iter(driver.engine._rows))
    monkeypatch.setattr(row.speech._decoder, "samples", None)
    events = driver.run(submit(2), credit(2), credit(1))
    (failed,) = of_type(Failed, events)
    assert (failed.context, failed.code) == (1, ErrorCode.ENGINE_ERROR)
    assert [event.context for event in of_type(Done, events)] == [2]


def test_text_after_the_end_fails_the_context(driver: Driver) -> None:
    """Text after `more=False` is an error of the sender."""
    driver.run(submit(1))
    (failed,) = driver.run(Append(1, "More.", len(TEXT), False, "en"))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.CONTEXT_CLOSED


def test_a_full_engine_refuses_and_recovers() -> None:
    """Beyond `max_rows` a submit fails as overloaded; a freed row can be used again."""
    driver = Driver(max_rows=2)
    driver.run(submit(1), submit(2))
    (failed,) = driver.run(submit(3))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.OVERLOADED
    driver.run(Cancel(1))
    assert isinstance(driver.run(submit(4), credit(4))[-1], Done)
    driver.engine.close()


def test_prepare_changes_no_audio(driver: Driver) -> None:
    """An unknown voice is ignored here and fails at its submit."""
    assert driver.run(Prepare("nobody", "en"), Prepare("heart", None)) == []


def test_close_frees_every_row(driver: Driver) -> None:
    """Closing frees every row and may be repeated."""
    driver.run(submit(1), submit(2), credit(1, 2_000))
    driver.engine.close()
    driver.engine.close()
    assert driver.engine.rows_used == 0
    assert driver.engine.step() is None
