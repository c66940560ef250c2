from dataclasses import dataclass, replace
from itertools import chain, repeat
from random import Random

import pytest
import torch

from testbed.engine_driving import CUSTOM_VOICE, Driver, pcm_of
from testbed.parity_reference import REFERENCE
from voiceagent_tts.audio.levels import frame_peaks
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.guards import RunawayDetector, frame_cap
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.model.prompt import Preset, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params
from voiceagent_tts.seam.commands import Append
from voiceagent_tts.seam.events import Failed, SegmentEnd

TEXT = "Hello there, somebody."


@pytest.mark.parametrize("seed", range(5))
def test_what_is_said_again_with_a_difference_is_no_circle(seed: int) -> None:
    """A vowel held for three seconds, or a second repeated with one code changed, is speech."""
    numbers = Random(seed)
    second = numbers.sample(range(2048), 12)
    codes = list(chain(second, repeat(7, 38), second))
    for _ in range(10):
        varied = list(second)
        varied[numbers.randrange(12)] = numbers.randrange(2048)
        codes += varied
    detector = RunawayDetector()
    for code in codes:
        detector.add_frame(code)
        detector.add_audio(is_silent=False)
        assert not detector.makes_noise(None)
        assert not detector.is_silent_for_long(has_spoken=True)


@pytest.mark.parametrize("lag", [0, 12, 36])
@pytest.mark.parametrize("cycle", [(7,), (7, 8), tuple(range(12))])
def test_silence_that_repeats_its_codes_ends_quietly(cycle: tuple[int, ...], lag: int) -> None:
    detector = RunawayDetector()
    codes = [*range(100, 120), *(cycle * 70)[:70]]
    for number, code in enumerate(codes):
        detector.add_frame(code)
        if number >= lag:
            detector.add_audio(is_silent=number - lag >= 20)
        assert not detector.makes_noise(None)
        assert detector.is_silent_for_long(has_spoken=True) is (detector.silent_frames >= 62)
    for _ in range(62 - detector.silent_frames):  # what is still to be heard
        detector.add_audio(is_silent=True)
    assert detector.is_silent_for_long(has_spoken=True)


@pytest.mark.parametrize("lag", [0, 12, 36])
def test_silence_after_a_short_text_ends_quietly_beyond_its_cap(lag: int) -> None:
    cap = frame_cap(3)
    detector = RunawayDetector()
    for number in range(cap + 20 + lag):
        detector.add_frame(number)
        if number >= lag:
            detector.add_audio(is_silent=number - lag >= cap - 40)
        assert detector.is_silent_for_long(has_spoken=True) is (detector.silent_frames >= 62)
        assert not detector.makes_noise(cap)
    detector.add_frame(0)
    detector.add_audio(is_silent=False)
    assert detector.makes_noise(cap)


@pytest.mark.parametrize("lag", [1, 12, 36])
def test_sound_below_the_cap_is_no_noise_however_far_the_row_is(lag: int) -> None:
    """A text whose frames are not all audio yet is judged by those that are."""
    cap = frame_cap(3)
    detector = RunawayDetector()
    for number in range(cap - 1 + lag):
        detector.add_frame(number)
        if number >= lag:
            detector.add_audio(is_silent=False)
        assert not detector.makes_noise(cap)
    detector.add_audio(is_silent=False)
    assert detector.makes_noise(cap)


@dataclass
class Sick:
    """A tiny model that a test changes until it misbehaves, with room for long sequences."""

    checkpoint: Checkpoint
    codec: Codec

    @property
    def head(self) -> torch.Tensor:
        """The weights that score codebook 0: [V, hidden]."""
        return self.checkpoint.network.talker.head.weight

    @property
    def end(self) -> int:
        return self.checkpoint.config.talker_config.codec_eos_token_id

    def driver(self) -> Driver:
        return Driver(parts=(self.checkpoint, self.codec))

    def codes(self, seeds: range, max_frames: int) -> list[torch.Tensor]:
        """Generate the codes of `TEXT` for each seed: [F, K]."""
        builder = PromptBuilder(self.checkpoint.config, self.checkpoint.tokenizer)
        voice = Preset(next(iter(self.checkpoint.config.talker_config.spk_id)))
        prompt = builder.build(TEXT, voice, "en")
        generation = self.checkpoint.generation
        requests = [Request(prompt, sampling_params(generation, s), max_frames) for s in seeds]
        return generate_codes(self.checkpoint.network, requests, len(seeds), 128)

    def begin_silently(self, codes: torch.Tensor) -> None:
        """Scale the sound so that the first frame of `codes` is silent and the second is not."""
        peaks = self.codec.decode(codes[:2]).view(2, FRAME_SAMPLES).abs().amax(1)
        assert peaks[0] < peaks[1]
        for weights in self.codec.decoder.output.parameters():
            weights.mul_(1e-3 / peaks.prod().sqrt())

    def fall_silent(self) -> None:
        for weights in self.codec.decoder.output.parameters():
            weights.zero_()

    def set(self, **settings: object) -> None:
        generation = replace(self.checkpoint.generation, **settings)  # type: ignore[arg-type]
        self.checkpoint = replace(self.checkpoint, generation=generation)


@pytest.fixture
def sick() -> Sick:
    """A model that is not packed, so that its weights can be changed."""
    checkpoint = load_checkpoint(REFERENCE / CUSTOM_VOICE, is_packed=False)
    model = Sick(checkpoint, load_codec(REFERENCE / CUSTOM_VOICE, is_packed=False))
    model.set(max_new_tokens=400)
    return model


def test_a_model_that_goes_in_circles_fails(sick: Sick) -> None:
    """If only one code is ever likely, the context fails after four seconds of it."""
    sick.head.zero_()
    sick.set(do_sample=False, repetition_penalty=1.0)
    driver = sick.driver()
    samples = len(pcm_of(driver.run(*driver.open(1, TEXT)), 1)) // 2
    assert 48 * FRAME_SAMPLES <= samples <= 50 * FRAME_SAMPLES
    assert failure_of(driver) == ErrorCode.TEXT_LOST


def failure_of(driver: Driver) -> ErrorCode:
    """Code of the error that ended the only context; the engine counts it."""
    (failure,) = [event for event in driver.events if isinstance(event, Failed)]
    assert driver.events[-1] is failure
    assert driver.engine.metrics["lost_texts_total"] == 1
    assert driver.engine.rows_used == 0
    return failure.code


def test_windows_of_frames_end_where_the_text_is_lost(sick: Sick) -> None:
    """Of a window of twelve frames only those before the cap are heard."""
    text = "OK"
    sick.checkpoint.network.talker.is_control[sick.end] = True  # it is never chosen
    driver = sick.driver()
    ids = len(sick.checkpoint.tokenizer.encode(text))
    events = driver.run(*driver.open(1, text, is_batch=True, keeps_silence=True))
    assert len(pcm_of(events, 1)) // 2 == frame_cap(ids) * FRAME_SAMPLES
    assert failure_of(driver) == ErrorCode.TEXT_LOST


def test_a_silent_model_is_tried_once_more(sick: Sick) -> None:
    sick.fall_silent()
    driver = sick.driver()
    driver.send(*driver.open(1, TEXT))
    steps = 0
    while driver.engine.step() is not None:
        steps += 1
    assert steps == 2 * 25
    assert failure_of(driver) == ErrorCode.TEXT_LOST
    assert len(driver.events) == 1


def test_a_later_sequence_without_a_sound_is_not_spoken(sick: Sick) -> None:
    """A sentence that stays silent twice is lost, also behind one that was heard."""
    sick.set(max_new_tokens=12)
    driver = sick.driver()
    driver.send(*driver.open(1, "Hello there.", feeding="segment", more=True))
    driver.run()
    assert [each.char_end for each in driver.events if isinstance(each, SegmentEnd)] == [12]
    sick.fall_silent()
    driver.run(Append(1, " Goodbye.", 12, False, "en"))
    assert failure_of(driver) == ErrorCode.TEXT_LOST
    assert sum(isinstance(each, SegmentEnd) for each in driver.events) == 1


def test_a_stillborn_run_is_spoken_with_another_seed(sick: Sick) -> None:
    (codes,) = sick.codes(range(1), 3)
    sick.head[sick.end] = 1.2 * sick.head[codes[2, 0]]  # the end is likely, but not certain
    runs = sick.codes(range(32), 8)
    seed = next(s for s in range(32) if len(runs[s]) == 2 and len(runs[s ^ 1]) > 4)
    sick.begin_silently(runs[seed])
    driver, other = sick.driver(), sick.driver()
    heard = pcm_of(driver.run(*driver.open(1, TEXT, seed=seed)), 1)
    assert heard == pcm_of(other.run(*other.open(1, TEXT, seed=seed ^ 1)), 1)
    assert len(heard) > 4 * FRAME_SAMPLES


def test_silence_before_the_first_sound_is_kept_where_it_is_asked_for(sick: Sick) -> None:
    sick.set(do_sample=False, subtalker_dosample=False, max_new_tokens=12)
    (codes,) = sick.codes(range(1), 12)
    sick.begin_silently(codes)
    trimmed, kept = sick.driver(), sick.driver()
    sound = pcm_of(trimmed.run(*trimmed.open(1, TEXT)), 1)
    whole = pcm_of(kept.run(*kept.open(1, TEXT, keeps_silence=True)), 1)
    silence = len(whole) - len(sound)
    assert silence == 2 * FRAME_SAMPLES
    assert whole[silence:] == sound
    assert max(frame_peaks(whole[:silence])) < 33


@pytest.mark.parametrize("silent", range(12))
def test_a_circle_with_silence_in_it_is_noise(silent: int) -> None:
    """A sound that comes back every second is no silence."""
    detector = RunawayDetector()
    for number in range(50):
        detector.add_frame(number % 12)
        detector.add_audio(is_silent=number % 12 >= 12 - silent)
    assert detector.makes_noise(None)
