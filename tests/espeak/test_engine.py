"""What espeak's engine adds to the promises of `tests/engines`."""

from testbed.segment_driving import Driver, append, credit, of_type, pcm_of, words_of
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.commands import Append, Cancel, Prepare
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Failed, SegmentEnd
from voiceagent_tts.text.words import split_words

TEXT = "Hello there, I am one of the agents."
LONG_TEXT = "This sentence is repeated so often that it is a long text. " * 10


def test_it_offers_its_voices_and_languages(driver: Driver) -> None:
    """Presets, variants and language voices."""
    capabilities = driver.engine.capabilities
    assert capabilities.engine == "espeak"
    assert capabilities.model.startswith("espeak-ng 1.")
    assert capabilities.has_native_words and capabilities.has_native_speed
    assert {"zh", "en", "ja", "ko", "de", "fr", "ru", "pt", "es", "it"} <= {*capabilities.languages}
    assert {"default", "alloy", "f3", "en-us"} <= set(capabilities.voices)


def test_the_first_chunk_is_small_and_none_is_long(driver: Driver) -> None:
    """The first chunk is one frame; later ones are at most a second."""
    events = driver.run(driver.submit(1, LONG_TEXT), credit(1))
    chunks = [part.chunk.samples for step in of_type(AudioStep, events) for part in step.rows]
    assert chunks[0] == FRAME_SAMPLES
    assert max(chunks) == SAMPLE_RATE_HZ


def test_a_cancel_while_speaking_stops_within_one_chunk(driver: Driver) -> None:
    """The row is free at once, and no event follows for its context."""
    driver.send(driver.submit(1, LONG_TEXT), credit(1))
    driver.send(Cancel(1), after_inbox_calls=2)
    driver.engine.step()
    assert driver.events == [Cancelled(1)]
    assert driver.engine.rows_used == 0
    assert driver.engine.step() is None
    assert isinstance(driver.run(driver.submit(2, TEXT), credit(2))[-1], Done)


def test_other_commands_while_speaking_take_effect(driver: Driver) -> None:
    """Text for the row that is spoken, a new context and a wrong request are all handled."""
    driver.send(driver.submit(1, TEXT, more=True), credit(1))
    driver.send(
        append(1, " The end.", len(TEXT)),
        driver.submit(2, TEXT),
        driver.submit(3, TEXT, voice="nobody"),
        Prepare("default", "ja"),
        credit(2),
        after_inbox_calls=1,
    )
    driver.run()
    assert {type(event) for event in driver.events if getattr(event, "context", 0) == 3} == {Failed}
    ends = {event.context for event in of_type(Done, driver.events)}
    assert ends == {1, 2}
    assert [w.word for w in words_of(driver.events, 1)] == split_words(TEXT + " The end.")


def test_a_segment_in_another_language_is_spoken_by_its_voice(driver: Driver) -> None:
    """The variant stays; the language follows the text."""
    german = "Guten Tag."
    events = driver.run(
        driver.submit(1, "Good day. ", more=True, voice="f3"),
        Append(1, german, 10, False, "de"),
        credit(1),
    )
    after = len(pcm_of(events, 1)) // 2 - of_type(SegmentEnd, events)[0].end_sample
    alone = len(driver.speak(german, "de", "f3")) // 2
    assert abs(after - alone) < SAMPLE_RATE_HZ // 50


def test_a_wrong_language_fails_the_context(driver: Driver) -> None:
    """The audio before it stays; no event follows."""
    (failed,) = driver.run(driver.submit(2, TEXT, language="xx"), credit(2))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.INVALID_LANGUAGE
    driver.run(driver.submit(1, TEXT, more=True), credit(1))
    (failed,) = driver.run(Append(1, "More.", len(TEXT), True, "xx"), credit(1))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.INVALID_LANGUAGE
    assert driver.run(append(1, "More.", len(TEXT))) == []
