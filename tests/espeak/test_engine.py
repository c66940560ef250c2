"""What espeak's engine adds to the promises of `tests/engines`."""

import pytest

from testbed.segment_driving import Driver, append, credit, of_type, pcm_of, words_of
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.seam.commands import Append, Prepare
from voiceagent_tts.seam.events import Done, Failed, SegmentEnd
from voiceagent_tts.text.words import split_words

TEXT = "Hello there, I am one of the agents."


def test_other_commands_while_speaking_take_effect(driver: Driver) -> None:
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
    german = "Guten Tag."
    events = driver.run(
        driver.submit(1, "Good day. ", more=True, voice="f3"),
        Append(1, german, 10, False, "de"),
        credit(1),
    )
    after = len(pcm_of(events, 1)) // 2 - of_type(SegmentEnd, events)[0].end_sample
    alone = len(driver.speak(german, "de", "f3")) // 2
    assert abs(after - alone) < SAMPLE_RATE_HZ // 50


def test_voices_are_loaded_ahead_only_while_nothing_is_spoken(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many a client announces: no listener waits for them, and the newest 64 are kept."""
    loaded: list[str] = []
    monkeypatch.setattr(EspeakLibrary, "load_voice", lambda _, voice: loaded.append(voice))
    driver.step(driver.submit(1, TEXT, more=True), credit(1), *[Prepare("default", "de")] * 99)
    assert loaded == []
    driver.run()
    assert loaded == ["gmw/de"] * 64
