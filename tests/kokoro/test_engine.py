"""What is Kokoro's own in the engine that it shares with hibari, whose tests have the rest."""

import random

import pytest

from testbed.espeak_driving import UNLIMITED, of_type, pcm_of, words_of
from testbed.hibari_driving import Driver
from testbed.random_texts import random_text
from voiceagent_tts.core import SAMPLE_RATE_HZ, Reading, WarningCode
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.commands import Cancel, Credit, SpeechOptions, Submit
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Failed, Warned, Words
from voiceagent_tts.text.words import split_words

pytestmark = pytest.mark.xdist_group("kokoro")

LONG_TEXT = "It goes on, and on, and on, " * 4 + "until the end."


def submit(context: int, text: str, voice: str = "af_heart", **fields) -> Submit:
    """Open a context with its whole text."""
    return Submit(context, text, 0, False, voice, "en", **fields)


def test_it_offers_its_voices_and_languages(driver: Driver) -> None:
    """The default first; a voice speaks no language but its own."""
    capabilities = driver.engine.capabilities
    assert capabilities.voices[0] == "af_heart" and len(capabilities.voices) == 41
    assert {"en", "en-gb", "en-us", "es", "fr", "hi", "it", "pt", "pt-br"} == set(
        capabilities.languages
    )
    assert capabilities.has_monolingual_voices and capabilities.has_native_words


def test_words_come_before_a_short_first_part(driver: Driver) -> None:
    """The first step makes a second of audio, however long the text; a cancel ends it."""
    driver.send(submit(1, LONG_TEXT), Credit(1, 0.0, UNLIMITED))
    driver.engine.step()
    assert [type(event) for event in driver.events] == [Words, AudioStep]
    words = words_of(driver.events, 1)
    assert [word.word for word in words] == split_words(LONG_TEXT)
    assert all(word.is_exact for word in words)
    assert len(pcm_of(driver.events, 1)) < 2 * 1.5 * SAMPLE_RATE_HZ
    assert driver.run(Cancel(1)) == [Cancelled(1)]


def test_a_text_is_spoken_to_its_end_at_any_speed(driver: Driver) -> None:
    """Equal commands give equal samples; half the speed takes about twice as long."""
    slow, normal, again = (
        driver.speak("Hi there.", voice="am_adam", speed=speed) for speed in (0.5, 1.0, 1.0)
    )
    assert normal == again
    assert len(slow) / len(normal) == pytest.approx(2.0, rel=0.3)


def test_the_reader_follows_the_voice(driver: Driver) -> None:
    """Amounts and pronunciations are said in the language of the voice, for one word each."""
    text = "Son 5 €, Xochitl."
    fields = {"readings": (Reading(9, 16, "Xochitl", "ˈsotʃil"),)}
    events = driver.run(submit(1, text, "em_alex", **fields), Credit(1, 0.0, UNLIMITED))
    assert [word.word for word in words_of(events, 1)] == split_words(text)
    assert not of_type(Warned, events)
    fields = {"readings": (Reading(0, 3, "Son", "ʘǂ"),)}
    (warned,) = of_type(Warned, driver.run(submit(2, "Son", "em_alex", **fields)))
    assert warned.code is WarningCode.IPA_IGNORED


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"voice": "jf_alpha"}, ErrorCode.INVALID_VOICE),
        ({"voice": "heart"}, ErrorCode.INVALID_VOICE),
        ({"options": SpeechOptions(speed=9.0)}, ErrorCode.INVALID_PARAM),
    ],
)
def test_a_wrong_request_fails_alone(driver: Driver, fields: dict, code: ErrorCode) -> None:
    """The failure names its context and frees its row."""
    (failed,) = of_type(Failed, driver.run(submit(1, "Hello.", **fields)))
    assert (failed.context, failed.code) == (1, code)
    assert driver.engine.rows_used == 0


@pytest.mark.parametrize("voice", ["af_heart", "ff_siwis", "hm_omega"])
@pytest.mark.parametrize("text", ["", " ", "...", "\U0001f600", "\x00\x07", "—", "« »"])
def test_text_without_speech_ends_at_once(driver: Driver, voice: str, text: str) -> None:
    """It needs no credit and makes no audio."""
    events = driver.run(submit(1, text, voice))
    assert events[-1] == Done(1, 0)


@pytest.mark.parametrize(
    ("voice", "unit"),
    [("af_heart", "1"), ("if_sara", "Sì, no. ")]
    + [
        pytest.param(voice, unit, marks=pytest.mark.thorough)
        for voice, unit in (("af_heart", "a"), ("if_sara", "\u0301"), ("if_sara", "你好，"))
    ],
)
def test_very_long_texts_begin_and_are_cancelled(driver: Driver, voice: str, unit: str) -> None:
    """100,000 characters of one kind are started, cancelled and leave no row behind."""
    text = (unit * 100_000)[:100_000]
    driver.send(submit(1, text, voice), Credit(1, 0.0, UNLIMITED))
    for _ in range(2):
        driver.engine.step()
    driver.run(Cancel(1))
    words = [word.word for word in words_of(driver.events, 1)]
    assert words == split_words(text)[: len(words)]
    assert not of_type(Failed, driver.events)
    assert driver.engine.rows_used == 0


def test_one_word_of_5000_letters_is_one_word(driver: Driver) -> None:
    """It is read in parts, and cancelled after its first one."""
    driver.send(submit(1, "abcde" * 1_000, "ef_dora"), Credit(1, 0.0, UNLIMITED))
    driver.engine.step()
    (word,) = words_of(driver.events, 1)
    assert word.word.text == "abcde" * 1_000 and word.end_sample > 0
    assert driver.run(Cancel(1)) == [Cancelled(1)]


@pytest.mark.thorough
@pytest.mark.parametrize("voice", ["af_heart", "bm_george", "em_alex", "ff_siwis", "hf_beta"])
def test_random_texts_are_spoken_to_their_end(driver: Driver, voice: str) -> None:
    """Every text ends with `Done`, with every word once, in order, inside the audio."""
    rng = random.Random(voice)
    for context in range(8):
        text = random_text(rng)[:60]
        options = SpeechOptions(speed=2.0)
        events = driver.run(
            submit(context, text, voice, options=options), Credit(context, 0.0, UNLIMITED)
        )
        assert isinstance(events[-1], Done), (text, events[-1])
        samples = len(pcm_of(events, context)) // 2
        words = words_of(events, context)
        assert [word.word for word in words] == split_words(text), text
        borders = [border for word in words for border in (word.start_sample, word.end_sample)]
        assert borders == sorted(borders), text
        assert all(0 <= border <= samples for border in borders), text
