import pytest

from testbed.espeak_driving import UNLIMITED, Driver, of_type, pcm_of, words_of
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.commands import Append, Cancel, Credit, Prepare, SpeechOptions, Submit
from voiceagent_tts.seam.engine import Engine
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Event, Failed, SegmentEnd, Words
from voiceagent_tts.text.words import split_words

TEXT = "Hello there, I am one of the agents."
LONG_TEXT = "This sentence is repeated so often that it is a long text. " * 40


def submit(context: int, text: str = TEXT, *, more: bool = False, **options) -> Submit:
    """Open a context with the default voice in English."""
    fields = {"char_base": 0, "voice": "default", "language": "en"} | options
    return Submit(context, text, more=more, **fields)


def credit(context: int, samples_wanted: int = UNLIMITED, playout_end: float = 0.0) -> Credit:
    """Credit for a context."""
    return Credit(context, playout_end, samples_wanted)


def first_index(events: list[Event], kind: type[Event], context: int) -> int:
    """Index of the first event of this type for a context."""
    for index, event in enumerate(events):
        if isinstance(event, AudioStep) and kind is AudioStep:
            if any(part.context == context for part in event.rows):
                return index
        elif isinstance(event, kind) and getattr(event, "context", None) == context:
            return index
    raise AssertionError(f"no {kind.__name__} for context {context}")


def test_it_is_an_engine(driver: Driver) -> None:
    """The engine implements `Engine` and reports its capabilities."""
    engine: Engine = driver.engine
    capabilities = engine.capabilities
    assert capabilities.engine == "espeak"
    assert capabilities.model.startswith("espeak-ng 1.")
    assert capabilities.has_native_words and capabilities.has_native_speed
    assert capabilities.text_feeding == ("segment",)
    assert {"zh", "en", "ja", "ko", "de", "fr", "ru", "pt", "es", "it"} <= {*capabilities.languages}
    assert {"default", "alloy", "f3", "en-us"} <= set(capabilities.voices)


def test_a_whole_text_gives_words_then_audio_then_the_end(driver: Driver) -> None:
    """Every word comes once, before its audio; segment and context end at the same sample."""
    events = driver.run(submit(1), credit(1))
    assert [type(event) for event in events[:2]] == [Words, AudioStep]
    assert [word.word for word in words_of(events, 1)] == split_words(TEXT)
    samples = len(pcm_of(events, 1)) // 2
    assert events[-2:] == [SegmentEnd(1, len(TEXT), samples), Done(1, samples)]
    assert 1.5 < samples / SAMPLE_RATE_HZ < 4.0
    assert driver.engine.rows_used == 0


def test_segments_follow_each_other_on_one_clock(driver: Driver) -> None:
    """Words of a later segment count from the context's first sample and its first character."""
    first, second = "Hello there. ", "How are you?"
    events = driver.run(submit(1, first, more=True), credit(1))
    assert of_type(Done, events) == []
    (end,) = of_type(SegmentEnd, events)
    assert end.char_end == len(first)
    events += driver.run(Append(1, second, len(first), True, "en"))
    events += driver.run(Append(1, "", len(first + second), False, "en"))
    words = words_of(events, 1)
    assert [word.word for word in words] == split_words(first + second)
    assert words[2].start_sample >= end.end_sample
    assert len(pcm_of(events, 1)) // 2 == events[-1].end_sample
    assert isinstance(events[-1], Done)


def test_a_sentence_pauses_only_where_more_may_follow(driver: Driver) -> None:
    """The last sentence has no pause after it, which would only delay the context's end."""
    last = len(pcm_of(driver.run(submit(1, "Hello there."), credit(1)), 1))
    followed = len(pcm_of(driver.run(submit(2, "Hello there.", more=True), credit(2)), 2))
    unfinished = len(pcm_of(driver.run(submit(3, "Hello there", more=True), credit(3)), 3))
    assert followed - last > 0.2 * SAMPLE_RATE_HZ * 2
    assert unfinished < followed - 0.2 * SAMPLE_RATE_HZ * 2


def test_a_row_without_credit_is_not_stepped(driver: Driver) -> None:
    """Audio is sent as far as credit allows; the words of a spoken piece are sent at once."""
    assert driver.run(submit(1)) == []
    assert driver.engine.step() is None
    events = driver.run(credit(1, 5_000))
    assert [word.word.text for word in words_of(events, 1)] == ["Hello", "there,"]
    assert len(pcm_of(events, 1)) == 2 * 5_000
    assert driver.run(credit(1, 4_000)) == []
    events += driver.run(credit(1, 5_001))
    assert len(pcm_of(events, 1)) == 2 * 5_001
    assert isinstance(driver.run(credit(1))[-1], Done)


def test_the_first_chunk_is_small_and_none_is_long(driver: Driver) -> None:
    """The first chunk is one frame; later ones are at most a second."""
    events = driver.run(submit(1, LONG_TEXT), credit(1))
    chunks = [part.chunk.samples for step in of_type(AudioStep, events) for part in step.rows]
    assert chunks[0] == FRAME_SAMPLES
    assert max(chunks) == SAMPLE_RATE_HZ


def test_a_long_text_does_not_delay_another_contexts_first_audio(driver: Driver) -> None:
    """A context that is submitted while a long text is spoken gets its first audio next."""
    driver.send(submit(1, LONG_TEXT), credit(1))
    driver.engine.step()
    driver.send(submit(2), credit(2))
    steps = 0
    while not any(p.context == 2 for s in of_type(AudioStep, driver.events) for p in s.rows):
        driver.engine.step()
        steps += 1
    assert steps == 1
    driver.run()
    assert isinstance(driver.events[-1], Done)
    assert driver.events[-1].context == 1


def test_new_contexts_are_served_in_the_order_in_which_they_came(driver: Driver) -> None:
    """The oldest context without audio is spoken first."""
    contexts = [5, 3, 9, 1]
    events = driver.run(*map(submit, contexts), *map(credit, reversed(contexts)))
    firsts = [first_index(events, AudioStep, context) for context in contexts]
    assert firsts == sorted(firsts)


def test_the_row_whose_playout_ends_first_is_spoken_first(driver: Driver) -> None:
    """Among contexts with audio, the earliest end of playout is first."""
    driver.run(*(submit(i, more=True) for i in (1, 2)), credit(1), credit(2))
    appends = (Append(i, "And more of it.", len(TEXT), False, "en") for i in (1, 2))
    events = driver.run(*appends, credit(1, playout_end=9.0), credit(2, playout_end=3.0))
    assert first_index(events, Words, 2) < first_index(events, Words, 1)


def test_a_cancel_while_speaking_stops_within_one_chunk(driver: Driver) -> None:
    """The row is free at once, and no event follows for its context."""
    driver.send(submit(1, LONG_TEXT), credit(1))
    driver.send(Cancel(1), after_inbox_calls=2)
    driver.engine.step()
    assert driver.events == [Cancelled(1)]
    assert driver.engine.rows_used == 0
    assert driver.engine.step() is None
    assert isinstance(driver.run(submit(2), credit(2))[-1], Done)


def test_other_commands_while_speaking_take_effect(driver: Driver) -> None:
    """Text for the row that is spoken, a new context and a wrong request are all handled."""
    driver.send(submit(1, more=True), credit(1))
    driver.send(
        Append(1, " The end.", len(TEXT), False, "en"),
        submit(2),
        submit(3, voice="nobody"),
        Prepare("default", "ja"),
        credit(2),
        after_inbox_calls=1,
    )
    driver.run()
    assert {type(event) for event in driver.events if getattr(event, "context", 0) == 3} == {Failed}
    ends = {event.context for event in of_type(Done, driver.events)}
    assert ends == {1, 2}
    assert [w.word for w in words_of(driver.events, 1)] == split_words(TEXT + " The end.")


def test_cancel_is_always_answered(driver: Driver) -> None:
    """A cancel is answered for unknown, waiting and finished contexts, and a second time."""
    assert driver.run(Cancel(7)) == [Cancelled(7)]
    assert driver.run(submit(1), Cancel(1), Cancel(1)) == [Cancelled(1), Cancelled(1)]
    driver.run(submit(2), credit(2))
    assert driver.run(Cancel(2)) == [Cancelled(2)]
    driver.run(submit(3), credit(3, 2_000))
    assert driver.run(Cancel(3), credit(3)) == [Cancelled(3)]
    assert driver.engine.rows_used == 0


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


def test_a_segment_in_another_language_is_spoken_by_its_voice(driver: Driver) -> None:
    """The variant stays; the language follows the text."""
    german = "Guten Tag."
    events = driver.run(
        submit(1, "Good day. ", more=True, voice="f3"),
        Append(1, german, 10, False, "de"),
        credit(1),
    )
    after = len(pcm_of(events, 1)) // 2 - of_type(SegmentEnd, events)[0].end_sample
    alone = len(driver.speak(german, "de", "f3")) // 2
    assert abs(after - alone) < SAMPLE_RATE_HZ // 50


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"voice": "nobody"}, ErrorCode.INVALID_VOICE),
        ({"language": "xx"}, ErrorCode.INVALID_LANGUAGE),
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


def test_a_wrong_language_in_the_middle_fails_the_context(driver: Driver) -> None:
    """The audio before it stays; no event follows."""
    driver.run(submit(1, more=True), credit(1))
    (failed,) = driver.run(Append(1, "More.", len(TEXT), True, "xx"), credit(1))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.INVALID_LANGUAGE
    assert driver.run(Append(1, "More.", len(TEXT), False, "en")) == []


def test_text_after_the_end_fails_the_context(driver: Driver) -> None:
    """Text after `more=False` is an error of the sender."""
    driver.run(submit(1))
    (failed,) = driver.run(Append(1, "More.", len(TEXT), False, "en"))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.CONTEXT_CLOSED


def test_a_context_cannot_be_opened_twice(driver: Driver) -> None:
    """A second `Submit` for an open context fails."""
    (failed,) = driver.run(submit(1), submit(1))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.CONTEXT_EXISTS
    assert driver.engine.rows_used == 0


def test_a_full_engine_refuses_and_recovers() -> None:
    """Beyond `max_rows` a submit fails as overloaded; a freed row can be used again."""
    driver = Driver(max_rows=2)
    driver.run(submit(1), submit(2))
    (failed,) = driver.run(submit(3))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.OVERLOADED
    assert driver.engine.rows_used == 2
    driver.run(Cancel(1))
    assert isinstance(driver.run(submit(4), credit(4))[-1], Done)


def test_step_returns_whether_there_is_more_work(driver: Driver) -> None:
    """`step` returns 0.0 while a row can be stepped, and None while only a command adds work."""
    assert driver.engine.step() is None
    driver.send(submit(1, LONG_TEXT), credit(1, 3 * SAMPLE_RATE_HZ))
    waits = []
    while not waits or waits[-1] is not None:
        waits.append(driver.engine.step())
    assert set(waits[:-1]) == {0.0}
    assert len(pcm_of(driver.events, 1)) == 2 * 3 * SAMPLE_RATE_HZ


def test_prepare_changes_no_audio(driver: Driver) -> None:
    """An unknown voice is ignored here and fails at its submit."""
    commands = [Prepare("nobody", "en"), Prepare("f1", "ru")]
    assert driver.run(*commands) == []
    assert isinstance(driver.run(submit(1), credit(1))[-1], Done)


def test_close_frees_every_row(driver: Driver) -> None:
    """Closing frees every row and may be repeated."""
    driver.run(submit(1), submit(2), credit(1, 2_000))
    driver.engine.close()
    driver.engine.close()
    assert driver.engine.rows_used == 0
    assert driver.engine.step() is None
