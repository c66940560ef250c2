"""What the engine of networks adds to the promises of `tests/engines`."""

from testbed.segment_driving import Driver, append, credit, of_type, pcm_of, words_of
from voiceagent_tts.core import Reading, WarningCode
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.seam.events import Done, SegmentEnd, Warned
from voiceagent_tts.text.words import split_words

TEXT = "Hello there, I am one of the agents."


def test_a_seed_makes_the_audio_reproducible(driver: Driver) -> None:
    """Equal seeds give equal samples, whatever the credit; another seed gives other noise."""
    first = driver.speak(TEXT, seed=5)
    assert driver.speak(TEXT, seed=5) == first
    assert driver.speak(TEXT, seed=6) != first
    assert driver.speak(TEXT) != first
    events = driver.run(driver.submit(9, TEXT, options=SpeechOptions(seed=5)))
    for end in range(1_000, len(first), 7_001):
        events += driver.run(credit(9, end))
    assert pcm_of(events, 9) == first


def test_words_have_exact_times_and_those_without_a_sound_no_length(driver: Driver) -> None:
    text = "Say 你好 now."
    words = words_of(driver.run(driver.submit(1, text), credit(1)), 1)
    assert [word.word for word in words] == split_words(text)
    assert [word.is_exact for word in words] == [True, False, False, True]
    assert words[1].start_sample == words[1].end_sample == words[0].end_sample
    alone = driver.run(driver.submit(2, "你好。"), credit(2))
    assert [word.end_sample for word in words_of(alone, 2)] == [0, 0]
    assert alone[-2:] == [SegmentEnd(2, 3, 0), Done(2, 0, is_unspeakable=True)]


def test_ipa_that_cannot_be_said_is_warned_of_once(driver: Driver) -> None:
    readings = (Reading(0, 5, "Hello", "日"),)
    events = driver.run(driver.submit(1, TEXT, more=True, readings=readings), credit(1))
    events += driver.run(append(1, " Again.", len(TEXT)))
    assert [event.code for event in of_type(Warned, events)] == [WarningCode.IPA_IGNORED]
    assert isinstance(events[-1], Done)
