"""The engine's promises: credit, cancel, fairness, and errors of one row."""

from pathlib import Path

import pytest

from testbed.pocket import SMALL_MODEL
from testbed.pocket_driving import Driver, pcm_of, samples_of, submit
from voiceagent_tts.core import FRAME_SAMPLES, Reading, WarningCode
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.pocket.states import PocketModel
from voiceagent_tts.seam.commands import Append, Cancel, Credit, Prepare, SpeechOptions, Submit
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Failed, SegmentEnd, Warned


def contexts_of(event: object) -> list[int]:
    """Contexts of an audio step, in its order."""
    assert isinstance(event, AudioStep), event
    return [row.context for row in event.rows]


def test_capabilities_name_the_languages_and_voices(driver: Driver) -> None:
    """The catalogue, the default voice first; words are left to the aligners."""
    capabilities = driver.engine.capabilities
    assert capabilities.engine == "pocket" and SMALL_MODEL in capabilities.model
    assert capabilities.languages == ("en",)
    assert capabilities.voices[0] == "alba" and "marius" in capabilities.voices
    assert not capabilities.has_native_words and capabilities.clone_width is not None
    details = {voice.name: voice for voice in capabilities.voice_details}
    assert (details["juergen"].language, details["juergen"].gender) == ("de", "male")


def test_a_text_is_spoken_segment_by_segment(driver: Driver) -> None:
    """Each segment ends with `SegmentEnd` at its own audio, and the last with `Done`."""
    events = driver.run(*submit(1, "Hello there.", more=True))
    assert isinstance(events[-1], SegmentEnd) and events[-1].char_end == 12
    first = samples_of(driver.events, 1)
    assert first == events[-1].end_sample > 0
    events = driver.run(Append(1, " And you?", 12, False, "en"))
    assert [type(event) for event in events[-2:]] == [SegmentEnd, Done]
    assert events[-1].end_sample == samples_of(driver.events, 1) > first
    assert driver.engine.rows_used == 0


def test_a_reading_is_said_and_not_its_mask(driver: Driver) -> None:
    """A span of a lexicon or of markup sounds like its respelling, and counts as written."""
    spelled = pcm_of(driver.run(*submit(1, "Start engine x now.")), 1)
    reading = Reading(6, 11, "engine x")
    masked = Submit(2, "Start xxxxx now.", 0, False, "alba", "en", readings=(reading,))
    events = driver.run(masked, Credit(2, 0.0, 10**9))
    assert pcm_of(events, 2) == spelled
    assert [event.char_end for event in events if isinstance(event, SegmentEnd)] == [16]


def test_audio_stops_where_credit_ends(driver: Driver) -> None:
    """A row gets no more than its credit, to the next frame, and continues with more."""
    events = driver.run(*submit(1, credit=3 * FRAME_SAMPLES - 100))
    assert samples_of(events, 1) == 3 * FRAME_SAMPLES
    assert driver.run() == []
    driver.run(Credit(1, 0.0, 3 * FRAME_SAMPLES + 1))
    assert samples_of(driver.events, 1) == 4 * FRAME_SAMPLES
    assert isinstance(driver.run(Credit(1, 0.0, 10**9))[-1], Done)


def test_a_cancelled_row_is_free_at_once(driver: Driver) -> None:
    """A cancel within a step frees the row before the next frame; the other row is unchanged."""
    alone = pcm_of(driver.run(*submit(1, "How are you?")), 1)
    driver.send(*submit(2, "Good evening to all of you."), *submit(3, "How are you?"))
    while samples_of(driver.events, 2) == 0:
        driver.engine.step()
    events = driver.run(Cancel(2))
    assert events[0] == Cancelled(2)
    assert samples_of(events[1:], 2) == 0
    assert driver.engine.rows_used == 0
    assert pcm_of(driver.events, 3) == alone


def test_cancel_of_an_unknown_context_is_answered(driver: Driver) -> None:
    """A cancel may cross a context's end."""
    assert driver.run(Cancel(9)) == [Cancelled(9)]


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_take_turns(model: PocketModel, tmp_path: Path, threads: int) -> None:
    """A step speaks as many rows as there are threads: rows without audio first, then deadlines."""
    driver = Driver(model, tmp_path, threads=threads)
    driver.run(Prepare("alba", "en"), *submit(9))
    driver.send(*submit(1), *submit(2), *submit(3))
    steps = [contexts_of(driver.step()[0]) for _ in range(3 if threads == 1 else 2)]
    assert steps == ([[1], [2], [3]] if threads == 1 else [[1, 2], [3, 1]])
    urgent = Credit(2, -100.0, 10**12)
    assert contexts_of(driver.step(urgent)[0])[0] == 2
    driver.engine.close()


def test_files_wait_for_listeners(model: PocketModel, tmp_path: Path) -> None:
    """A batch context speaks only in steps that no listener needs."""
    driver = Driver(model, tmp_path, threads=1)
    driver.run(Prepare("alba", "en"), *submit(9))
    batch = submit(1, options=SpeechOptions(is_batch=True))
    events = driver.run(*batch, *submit(2, "How are you?"))
    order = [
        context for step in events if isinstance(step, AudioStep) for context in contexts_of(step)
    ]
    assert order == sorted(order, reverse=True) and set(order) == {1, 2}
    driver.engine.close()


def test_an_instruction_is_ignored_with_a_warning(driver: Driver) -> None:
    """The client learns it once, before any audio."""
    events = driver.run(*submit(1, options=SpeechOptions(instruct="whisper")))
    assert isinstance(events[0], Warned) and events[0].code is WarningCode.INSTRUCT_IGNORED
    assert isinstance(events[-1], Done)


def test_text_without_anything_to_speak_ends_silently(driver: Driver) -> None:
    """Punctuation and emoji have no audio, and their segment ends."""
    events = driver.run(*submit(1, " ... 😀 \n"))
    assert [type(event) for event in events] == [SegmentEnd, Done]
    assert events[-1] == Done(1, 0)


@pytest.mark.parametrize(
    "text", ["a", "\x00Hello\x07 there", "?! Hello", "hello " * 300, "Ünïcödé – “quotes” 你好"]
)
def test_any_text_is_spoken_to_its_end(driver: Driver, text: str) -> None:
    """Control characters, long texts and other scripts neither fail nor hang."""
    events = driver.run(*submit(1, text))
    assert isinstance(events[-1], Done) and events[-1].end_sample > 0


def test_a_context_without_text_ends(driver: Driver) -> None:
    """An empty last text only ends the context."""
    assert driver.run(*submit(1, "")) == [Done(1, 0)]


def test_errors_concern_one_context(driver: Driver) -> None:
    """An unknown voice, a taken number and text after the last text are refused with a code."""
    driver.send(*submit(1, more=True))
    events = driver.run(*submit(2, voice="nobody"), Submit(1, "x", 0, False, "alba", "en"))
    failed = {event.context: event for event in events if isinstance(event, Failed)}
    assert failed[2].code is ErrorCode.INVALID_VOICE and "'nobody'" in failed[2].message
    assert failed[1].code is ErrorCode.CONTEXT_EXISTS
    assert isinstance(driver.run(*submit(3))[-1], Done)


def test_text_after_the_last_text_is_refused(driver: Driver) -> None:
    """The sender has said that no more follows."""
    driver.send(*submit(1, credit=1))
    (*_, failed) = driver.run(Append(1, "more", 12, True, "en"))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.CONTEXT_CLOSED
    assert driver.run(Append(1, "late", 12, True, "en")) == []


def test_without_a_free_row_a_context_is_refused(model: PocketModel, tmp_path: Path) -> None:
    """The others continue."""
    driver = Driver(model, tmp_path, rows=1)
    events = driver.run(*submit(1), *submit(2))
    (refused,) = [event for event in events if isinstance(event, Failed)]
    assert (refused.context, refused.code) == (2, ErrorCode.OVERLOADED)
    assert isinstance(events[-1], Done)
    driver.engine.close()


def test_a_voice_of_the_catalogue_that_cannot_be_had_is_said(driver: Driver) -> None:
    """Without a network, a voice that was never downloaded fails its context alone."""
    events = driver.run(*submit(1, voice="george"), *submit(2))
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert failed.code is ErrorCode.INVALID_VOICE
    assert "'george'" in failed.message and "not on this machine" in failed.message
    assert isinstance(events[-1], Done)


def test_a_failure_of_the_model_concerns_one_context(
    driver: Driver,
    model: PocketModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error names no words, and the next context is spoken."""
    with monkeypatch.context() as patch:
        patch.setattr(model.network, "_estimate_max_gen_len", lambda tokens: 1 / 0)
        (failed,) = driver.run(*submit(1, "Secret words."))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.ENGINE_ERROR
    assert failed.message == "Pocket TTS failed with ZeroDivisionError"
    assert "Secret" not in caplog.text
    assert isinstance(driver.run(*submit(2))[-1], Done)


def test_silence_before_the_first_sound_is_kept_only_on_request(
    driver: Driver, model: PocketModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole silent frames before the first sound are dropped."""
    whole = samples_of(driver.run(*submit(1)), 1)
    decode = model.network.mimi.decode_from_latent
    calls: list[int] = []

    def silent_at_first(*arguments: object) -> object:
        calls.append(1)
        return decode(*arguments) * (0.0 if len(calls) <= 2 else 1.0)  # type: ignore[arg-type]

    monkeypatch.setattr(model.network.mimi, "decode_from_latent", silent_at_first)
    assert samples_of(driver.run(*submit(2)), 2) == whole - 2 * FRAME_SAMPLES
    calls.clear()
    kept = driver.run(*submit(3, options=SpeechOptions(keeps_silence=True)))
    assert samples_of(kept, 3) == whole
