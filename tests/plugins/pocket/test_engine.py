"""What the engine of Pocket TTS adds to the promises of `tests/engines`."""

import pytest

from testbed.segment_driving import Driver, credit, of_type, pcm_of, samples_of
from voiceagent_tts.core import FRAME_SAMPLES, Reading
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.pocket.states import PocketModel
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.seam.events import Failed, SegmentEnd


def test_a_reading_is_said_and_not_its_mask(driver: Driver) -> None:
    """A span of a lexicon or of markup sounds like its respelling, and counts as written."""
    spelled = driver.speak("Start engine x now.")
    masked = driver.submit(1, "Start xxxxx now.", readings=(Reading(6, 11, "engine x"),))
    events = driver.run(masked, credit(1))
    assert pcm_of(events, 1) == spelled
    assert [event.char_end for event in of_type(SegmentEnd, events)] == [16]


def test_the_model_is_given_words_for_numbers(driver: Driver) -> None:
    """It was trained on words; the audio is that of the words."""
    said = driver.speak("It costs four dollars and twenty cents.")
    assert driver.speak("It costs $4.20.") == said != driver.speak("It costs nothing.")


def test_a_failure_of_the_model_concerns_one_context(
    driver: Driver,
    model: PocketModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error names no words, and the next context is spoken."""
    with monkeypatch.context() as patch:
        patch.setattr(model.network, "_estimate_max_gen_len", lambda tokens: 1 / 0)
        (failed,) = driver.run(driver.submit(1, "Secret words."), credit(1))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.ENGINE_ERROR
    assert failed.message == "Pocket TTS failed with ZeroDivisionError"
    assert "Secret" not in caplog.text
    assert driver.speak("Hello.")


def test_silence_before_the_first_sound_is_kept_only_on_request(
    driver: Driver, model: PocketModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole silent frames before the first sound are dropped."""
    whole = driver.speak("Hello there.")
    decode = model.network.mimi.decode_from_latent
    calls: list[int] = []

    def silent_at_first(*arguments: object) -> object:
        calls.append(1)
        return decode(*arguments) * (0.0 if len(calls) <= 2 else 1.0)  # type: ignore[arg-type]

    monkeypatch.setattr(model.network.mimi, "decode_from_latent", silent_at_first)
    assert len(driver.speak("Hello there.")) == len(whole) - 2 * 2 * FRAME_SAMPLES
    calls.clear()
    options = SpeechOptions(keeps_silence=True)
    kept = driver.run(driver.submit(3, "Hello there.", options=options), credit(3))
    assert 2 * samples_of(kept, 3) == len(whole)
