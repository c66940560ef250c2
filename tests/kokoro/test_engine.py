"""What is Kokoro's own in the engine that it shares with hibari (promises: `tests/engines`)."""

import pytest

from testbed.segment_driving import Driver, credit, of_type, words_of
from voiceagent_tts.core import Reading, WarningCode
from voiceagent_tts.seam.events import Warned
from voiceagent_tts.text.words import split_words

pytestmark = [pytest.mark.kokoro, pytest.mark.xdist_group("kokoro")]


def test_a_text_is_spoken_to_its_end_at_any_speed(driver: Driver) -> None:
    """Equal commands give equal samples; twice the speed takes about half as long."""
    normal, fast, again = (
        driver.speak("Hi there.", voice="am_adam", speed=speed) for speed in (1.0, 2.0, 2.0)
    )
    assert fast == again
    assert len(normal) / len(fast) == pytest.approx(2.0, rel=0.3)


def test_the_reader_follows_the_voice(driver: Driver) -> None:
    text = "Son 5 €, Xochitl."
    fields = {"readings": (Reading(9, 16, "Xochitl", "ˈsotʃil"),)}
    events = driver.run(driver.submit(1, text, voice="em_alex", **fields), credit(1))
    assert [word.word for word in words_of(events, 1)] == split_words(text)
    assert not of_type(Warned, events)
    fields = {"readings": (Reading(0, 3, "Son", "ʘǂ"),)}
    (warned,) = of_type(Warned, driver.run(driver.submit(2, "Son", voice="em_alex", **fields)))
    assert warned.code is WarningCode.IPA_IGNORED
