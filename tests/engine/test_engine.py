import gc
import itertools
from itertools import islice
from random import Random

import numpy as np
import pytest
import torch

from testbed.agent_text import agent_sentences
from testbed.engine_driving import Driver, last_of, load, pcm_of
from testbed.heard_words import HeardWords
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.engine.guards import RunawayDetector
from voiceagent_tts.engine.prompt_cache import PromptCache
from voiceagent_tts.engine.sequence import EngineContext, Sequence
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.commands import Append, Cancel, Credit, Flush, Prepare
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Failed, SegmentEnd
from voiceagent_tts.text.words import split_words

TEXT = "Hello there, somebody."
LONG = "This sentence is one of many that follow each other. " * 9


def test_speaks_whole_frames_and_ends(driver: Driver) -> None:
    events = driver.run(*driver.open(1, TEXT))
    pcm = pcm_of(events, 1)
    samples = len(pcm) // 2
    assert samples > 0
    assert samples % FRAME_SAMPLES == 0
    assert events[-2:] == [SegmentEnd(1, len(TEXT), samples), Done(1, samples)]
    assert driver.engine.rows_used == 0


def test_the_first_frame_sent_has_sound(driver: Driver) -> None:
    first = np.frombuffer(pcm_of(driver.run(*driver.open(1, TEXT)), 1)[: 2 * FRAME_SAMPLES], "<i2")
    assert np.abs(first).max() > 33


def test_cancel_frees_the_row_by_the_next_step(driver: Driver) -> None:
    driver.send(*driver.open(1, LONG))
    for _ in range(4):
        driver.engine.step()
    assert any(isinstance(event, AudioStep) for event in driver.events)
    driver.send(Cancel(1), Cancel(1), Cancel(99))
    driver.events.clear()
    driver.engine.step()
    assert driver.events == [Cancelled(1), Cancelled(1), Cancelled(99)]
    assert driver.engine.rows_used == 0
    assert driver.engine.step() is None


def test_without_credit_nothing_is_made(driver: Driver) -> None:
    """A row stops at the first whole frame that reaches its credit."""
    submit, _ = driver.open(1, LONG)
    assert pcm_of(driver.run(submit), 1) == b""
    driver.run(Credit(1, 0.0, 5 * FRAME_SAMPLES - 1))
    assert len(pcm_of(driver.events, 1)) == 2 * 5 * FRAME_SAMPLES
    driver.run(Credit(1, 0.0, 7 * FRAME_SAMPLES))
    assert len(pcm_of(driver.events, 1)) == 2 * 7 * FRAME_SAMPLES


def test_each_segment_has_its_language(driver: Driver) -> None:
    """A segment in another language than the first is spoken as it would be alone."""
    driver.run(*driver.open(1, "Hello there.", more=True))
    first = len(pcm_of(driver.events, 1))
    driver.run(Append(1, "Buenos dias.", 12, False, "es"))
    alone = pcm_of(driver.run(*driver.open(2, "Buenos dias.", language="es")), 2)
    assert pcm_of(driver.events, 1)[first:] == alone


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_chunks_of_a_text_are_spoken_alike(seed: int) -> None:
    random = Random(seed)
    borders = [0, *sorted(random.sample(range(1, len(TEXT)), 6)), len(TEXT)]
    whole, pieces = Driver(), Driver()
    expected = pcm_of(whole.run(*whole.open(1, TEXT, feeding="token")), 1)
    pieces.send(*pieces.open(1, "", more=True, feeding="token"))
    for start, end in itertools.pairwise(borders):
        pieces.send(Append(1, TEXT[start:end], start, True, None))
        for _ in range(random.randrange(5)):
            pieces.engine.step()
    pieces.run(Append(1, "", len(TEXT), False, None))
    assert pcm_of(pieces.events, 1) == expected


def test_ten_minutes_roll_over_at_sentence_ends() -> None:
    driver = Driver(parts=load(max_frames=5))
    text = " ".join(islice(agent_sentences(seed=1), 95))
    assert len(text) > 9000
    heard = HeardWords()
    words = list[WordTimestamp]()
    submit, credit = driver.open(1, "", more=True, feeding="token")
    driver.run(submit, credit)
    for start in range(0, len(text), 1000):  # faster than speech
        driver.send(Append(1, text[start : start + 1000], start, True, None))
        heard.expect(text[start : start + 1000], is_whole=False)
    events = driver.run(Append(1, "", len(text), False, None), steps=20_000)
    samples = 0
    for event in events:
        if isinstance(event, AudioStep):
            chunk = event.rows[0].chunk
            assert chunk.start_sample == samples
            assert heard.push_audio(chunk) == chunk
            words += heard.pop_due(samples / SAMPLE_RATE_HZ)
            heard.playout.send(chunk.samples, now=samples / SAMPLE_RATE_HZ)
            samples = chunk.end_sample
    heard.expect("")
    heard.end_audio()
    words += heard.pop_due(samples / SAMPLE_RATE_HZ)
    assert [word.word for word in words] == split_words(text)
    ends = [event for event in events if isinstance(event, SegmentEnd)]
    assert len(ends) > 20
    assert all(text[: end.char_end].rstrip()[-1] in ".?" for end in ends)
    assert (ends[-1].char_end, ends[-1].end_sample) == (len(text), samples)
    assert events[-1] == Done(1, samples)


def test_a_long_context_keeps_nothing_of_what_it_has_said() -> None:
    """A long context keeps no more objects alive than after its first sequences."""
    driver, sentences = Driver(parts=load(max_frames=5)), agent_sentences(seed=2)
    driver.run(*driver.open(1, "", more=True, feeding="token"))
    written, alive = 0, list[int]()
    for _ in range(4):
        for _ in range(8):
            sentence = f"{next(sentences)} "
            driver.run(Append(1, sentence, written, True, None))
            written += len(sentence)
        assert sum(isinstance(event, SegmentEnd) for event in driver.events) >= 2
        driver.events.clear()
        gc.collect()
        alive.append(len(gc.get_objects()))
    assert alive[-1] - alive[1] < 10


def test_a_flush_ends_what_was_said_so_far(driver: Driver) -> None:
    submit, credit = driver.open(1, "First part", more=True, feeding="token")
    driver.run(submit, credit, Flush(1))
    ends = [event for event in driver.events if isinstance(event, SegmentEnd)]
    assert [end.char_end for end in ends] == [10]
    driver.run(Append(1, " and the second.", 10, False, None))
    assert last_of(driver.events, 1)
    assert len(pcm_of(driver.events, 1)) > 2 * ends[0].end_sample


@pytest.mark.parametrize("feeding", ["token", "segment"])
@pytest.mark.parametrize("text", ["", "   ", "🎉", "\n---\n"])
def test_nothing_to_say_is_said_at_once(driver: Driver, text: str, feeding: str) -> None:
    events = driver.run(*driver.open(1, text, feeding=feeding))
    assert pcm_of(events, 1) == b""
    assert events[-1] == Done(1, 0)


@pytest.mark.parametrize(
    ("options", "code", "known"),
    [
        ({"voice": "nobody"}, ErrorCode.INVALID_VOICE, "eric, ryan, vivian"),
        ({"language": "tlh"}, ErrorCode.INVALID_LANGUAGE, "chinese, english, german"),
    ],
)
def test_what_the_model_has_not_is_refused(
    driver: Driver, options: dict[str, str], code: ErrorCode, known: str
) -> None:
    """An unknown voice or language fails only its own context; the error lists the known ones."""
    driver.send(*driver.open(2, TEXT))
    events = driver.run(*driver.open(1, TEXT, **options))
    failed = last_of(events, 1)
    assert isinstance(failed, Failed)
    assert failed.code is code
    assert all(each in failed.message for each in (*options.values(), known))
    assert isinstance(last_of(events, 2), Done)


def test_more_contexts_than_rows_are_refused() -> None:
    driver = Driver(rows=2)
    events = driver.run(*driver.open(1, TEXT), *driver.open(2, TEXT), *driver.open(3, TEXT))
    refused = last_of(events, 3)
    assert isinstance(refused, Failed)
    assert refused.code is ErrorCode.OVERLOADED
    assert isinstance(last_of(events, 1), Done)
    assert isinstance(last_of(events, 2), Done)


def test_a_designed_voice_needs_its_description() -> None:
    driver = Driver("voice_design-1b7")
    assert driver.engine.capabilities.voices == ("designed",)
    refused = last_of(driver.run(*driver.open(1, TEXT)), 1)
    assert isinstance(refused, Failed)
    assert "description" in refused.message
    events = driver.run(*driver.open(2, TEXT, instruct="an old sailor"))
    assert isinstance(last_of(events, 2), Done)


FAULTS = {
    "start": (PromptCache, "build"),
    "text": (Sequence, "next_ids"),
    "frame": (RunawayDetector, "add_frame"),
    "sound": (EngineContext, "record_sent"),
    "end": (RunawayDetector, "is_silent_for_long"),
}
"""What works for one sequence, by the part of a step that calls it."""


@pytest.mark.parametrize("part", FAULTS)
def test_an_unexpected_error_ends_its_context_alone(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    kind, name = FAULTS[part]
    work = getattr(kind, name)

    def concerns_context_2(*args: object) -> bool:
        if (context := driver.engine._contexts.get(2)) is None:
            return False
        detectors = (sequence.detector for sequence in context.sequences)
        own = (context, *context.sequences, *detectors)
        return any(each is arg for each in own for arg in args)

    def work_or_fail(*args: object, **options: object) -> object:
        if concerns_context_2(*args):
            raise RuntimeError(LONG)
        return work(*args, **options)

    monkeypatch.setattr(kind, name, work_or_fail)
    events = driver.run(*driver.open(1, TEXT), *driver.open(2, LONG))
    failed = last_of(events, 2)
    assert isinstance(failed, Failed) and failed.code is ErrorCode.ENGINE_ERROR
    assert isinstance(last_of(events, 1), Done) and pcm_of(events, 1)
    assert driver.engine.rows_used == 0
    assert "work_or_fail" in caplog.text and LONG not in caplog.text + failed.message
    assert isinstance(driver.run(*driver.open(3, TEXT))[-1], Done), "its row can be used again"


def test_an_unexpected_error_in_a_preparation_ends_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PromptCache, "prepare", lambda *_: 1 / 0)
    voice = driver.engine.capabilities.voices[0]
    driver.run(Prepare(voice, "en", "token"))
    assert isinstance(driver.run(*driver.open(1, TEXT))[-1], Done)


def test_an_error_of_the_device_ends_the_process(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would be computed after it, so another process must start."""

    def fail(*_: object) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered", 700)

    monkeypatch.setattr(PromptCache, "build", fail)
    with pytest.raises(torch.AcceleratorError):
        driver.run(*driver.open(1, TEXT))
