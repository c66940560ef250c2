"""Cloned voices in the cache: read and primed once, reloaded when replaced, dropped when unused."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.engine_driving import Driver, last_of, load, pcm_of
from testbed.parity_reference import REFERENCE
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.codec_stream import Priming
from voiceagent_tts.engine.voice_cache import VoiceCache
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import read_model_config
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.plugins.clones.clone_files import write_file
from voiceagent_tts.plugins.recordings.clone import load_reference_encoder
from voiceagent_tts.seam.commands import Append, Cancel, Prepare
from voiceagent_tts.seam.events import Done, Failed, SegmentEnd

BASE = "base-0b6"
TEXT = "Hello there, somebody."


def clone(seed: int, frames: int | None = 6) -> Cloned:
    """Make a voice of random numbers; without frames it has a speaker embedding only."""
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(64, generator=generator)
    if frames is None:
        return Cloned(embedding)
    codes = torch.randint(64, (frames, 16), generator=generator)
    return Cloned(embedding, codes, "quick brown fox")


@pytest.fixture
def folder(tmp_path: Path) -> VoiceFolder:
    """A folder with two clones: one with a reference, one with a speaker embedding only."""
    kept = VoiceFolder(tmp_path)
    write_file(kept.file("anna"), clone(1).to_bytes())
    write_file(kept.file("bert"), clone(2, frames=None).to_bytes())
    return kept


@pytest.fixture
def driver(folder: VoiceFolder) -> Driver:
    """An engine with the tiny Base model, whose runs are short, and that folder."""
    return Driver(BASE, voices=folder.path, parts=load(BASE, max_frames=8))


def test_a_cached_clone_speaks_as_a_cold_one(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second context uses the cached voice, primes nothing, and makes identical samples."""
    cold = pcm_of(driver.run(*driver.open(1, TEXT, voice="anna")), 1)
    assert (driver.voices.counts.hits, driver.voices.counts.misses) == (0, 1)
    monkeypatch.setattr(driver.engine._runner, "prime", None)
    cached = pcm_of(driver.run(*driver.open(2, TEXT, voice="anna")), 2)
    metrics = driver.engine.metrics
    assert (metrics["clone_cache_hits_total"], metrics["clone_cache_misses_total"]) == (1, 1)
    assert cached == cold != b""


def test_a_clone_that_was_replaced_since_its_context_opened_is_refused(
    driver: Driver, folder: VoiceFolder
) -> None:
    """It may be of another person, also where the voice before is in memory."""
    opened_with = folder.version("anna")
    submit, credit = driver.open(1, TEXT, voice="anna", voice_version=opened_with)
    assert isinstance(last_of(driver.run(submit, credit), 1), Done)
    write_file(folder.file("anna"), clone(5).to_bytes())
    driver.run(Prepare("anna", "en", voice_version=opened_with))
    failed = last_of(driver.run(replace(submit, context=2), replace(credit, context=2)), 2)
    assert isinstance(failed, Failed) and failed.code is ErrorCode.INVALID_VOICE
    assert "open a new context" in failed.message


@pytest.mark.parametrize("failing_part", [1, 2])
def test_a_reference_whose_part_failed_is_computed_anew(
    folder: VoiceFolder, failing_part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that a failure leaves is continued by nobody: the next context sounds as ever."""
    write_file(folder.file("long"), clone(4, frames=30).to_bytes())
    parts = load(BASE, max_frames=8)
    driver, other = (Driver(BASE, voices=folder.path, parts=parts) for _ in range(2))
    prime_part, primed = CodecDecoder.prime_part, list[int]()

    def fail_once(decoder: CodecDecoder, codes: torch.Tensor, *rest: Any) -> None:
        primed.append(codes.shape[-1])
        if len(primed) == failing_part:
            raise torch.OutOfMemoryError
        prime_part(decoder, codes, *rest)

    monkeypatch.setattr(CodecDecoder, "prime_part", fail_once)
    assert isinstance(last_of(driver.run(*driver.open(1, TEXT, voice="long")), 1), Failed)
    spoken = pcm_of(driver.run(*driver.open(2, TEXT, voice="long")), 2)
    assert spoken == pcm_of(other.run(*other.open(2, TEXT, voice="long")), 2) != b""


def counted_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an item with each part of a reference that is computed from now on."""
    parts, advance = list[int](), Priming.advance

    def count(priming: Priming) -> None:
        parts.append(1)
        advance(priming)

    monkeypatch.setattr(Priming, "advance", count)
    return parts


def test_a_long_reference_delays_others_by_a_part_at_a_time(
    folder: VoiceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first use of a voice is computed, other rows make a frame in every step."""
    driver = Driver(BASE, voices=folder.path)
    write_file(folder.file("long"), clone(4, frames=200).to_bytes())
    driver.run(*driver.open(1, TEXT, voice="bert", feeding="token", more=True))
    driver.send(*driver.open(2, TEXT, voice="long"), *driver.open(3, TEXT, voice="long"))
    driver.send(Append(1, 9 * TEXT, len(TEXT), True, None))
    parts = counted_parts(monkeypatch)
    for step in range(1, 18):
        frames = driver.engine.metrics["frames_total"]
        driver.engine.step()
        assert len(parts) == step
        assert driver.engine.metrics["frames_total"] > frames
    driver.run(Cancel(1))
    assert len(parts) == -(-200 // 12)
    assert pcm_of(driver.events, 2)
    assert pcm_of(driver.events, 3)


@pytest.mark.parametrize(("step_s", "waits"), [(FRAME_S, True), (FRAME_S / 8, False)])
def test_the_voice_of_a_file_is_computed_where_it_delays_no_listener(
    folder: VoiceFolder, monkeypatch: pytest.MonkeyPatch, step_s: float, waits: bool
) -> None:
    """Beside a listener whose audio is made just in time it waits; it needs no more than time."""
    driver = Driver(BASE, voices=folder.path, step_s=step_s)
    write_file(folder.file("long"), clone(4, frames=200).to_bytes())
    driver.run(*driver.open(1, TEXT, voice="bert", feeding="token", more=True))
    driver.send(Append(1, 9 * TEXT, len(TEXT), True, None))
    for _ in range(10):
        driver.engine.step()
    parts = counted_parts(monkeypatch)
    driver.send(*driver.open(2, TEXT, voice="long", is_batch=True))
    for _ in range(10):
        driver.engine.step()
    assert (not parts) is waits
    driver.run(Cancel(1))
    assert len(parts) == -(-200 // 12)
    assert pcm_of(driver.events, 2)


def test_a_clone_with_a_long_reference_waits_for_no_second_sentence(
    driver: Driver, folder: VoiceFolder
) -> None:
    """A clone speaks although its first sentence has fewer ids than the reference has frames."""
    write_file(folder.file("long"), clone(4, frames=200).to_bytes())
    first, second = "Yes, of course I can. ", "What would you like to hear?"
    open_text = driver.open(1, first, voice="long", feeding="token", more=True)
    assert pcm_of(driver.run(*open_text, Append(1, second[:5], len(first), True, None)), 1)
    rest = Append(1, second[5:], len(first) + 5, False, None)
    assert isinstance(last_of(driver.run(rest), 1), Done)
    ends = [each.char_end for each in driver.events if isinstance(each, SegmentEnd)]
    assert ends == [len(first.rstrip()), len(first + second)], "one row a sentence"


def test_prepare_does_it_ahead(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `Prepare` the first context finds the voice read and primed."""
    driver.run(Prepare("anna", "en"), Prepare("nobody", "en"))
    monkeypatch.setattr(driver.engine._runner, "prime", None)
    assert isinstance(last_of(driver.run(*driver.open(1, TEXT, voice="anna")), 1), Done)
    assert driver.voices.counts.hits == 1


def test_a_replaced_voice_is_heard_by_the_next_context(driver: Driver, folder: VoiceFolder) -> None:
    before = pcm_of(driver.run(*driver.open(1, TEXT, voice="anna", feeding="token")), 1)
    submit, credit = driver.open(2, TEXT[:12], voice="anna", feeding="token", more=True)
    driver.run(submit, credit)
    write_file(folder.file("anna"), clone(9).to_bytes())
    driver.run(Append(2, TEXT[12:], 12, False, None))
    assert pcm_of(driver.events, 2) == before
    after = pcm_of(driver.run(*driver.open(3, TEXT, voice="anna", feeding="token")), 3)
    assert after != before
    assert driver.voices.counts.misses == 2


def test_an_unknown_clone_fails_alone(driver: Driver) -> None:
    """A name whose file is missing or was removed fails only its own context.

    The client is told no other name, which may be another key's.
    """
    failed = last_of(driver.run(*driver.open(1, TEXT, voice="../anna")), 1)
    assert isinstance(failed, Failed) and failed.code is ErrorCode.INVALID_VOICE
    failed = last_of(driver.run(*driver.open(2, TEXT, voice="nobody")), 2)
    assert isinstance(failed, Failed) and "got 'nobody'" in failed.message
    assert not {"anna", "bert"} & set(re.findall(r"\w+", failed.message))


MISFIT, DAMAGED = "cloned for another model", "expected a voice file"


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        (Cloned(torch.zeros(32)).to_bytes(), MISFIT),
        (Cloned(torch.zeros(64, 2)).to_bytes(), MISFIT),
        (Cloned(torch.zeros(64), torch.zeros(4, 8, dtype=torch.int64), "fox").to_bytes(), MISFIT),
        (Cloned(torch.zeros(64), torch.full((4, 16), 64), "fox").to_bytes(), MISFIT),
        (Cloned(torch.zeros(64), torch.full((4, 16), -1), "fox").to_bytes(), MISFIT),
        (Cloned(torch.zeros(64), torch.zeros(0, 16, dtype=torch.int64), "fox").to_bytes(), MISFIT),
        (b"no safetensors", DAMAGED),
    ],
    ids=["width", "rank", "codebooks", "code", "negative code", "no frames", "damaged"],
)
def test_a_file_that_is_no_voice_of_the_model_is_refused(
    driver: Driver, folder: VoiceFolder, stored: bytes, sentence: str
) -> None:
    """It fails only its own context, with a remedy."""
    write_file(folder.file("misfit"), stored)
    failed = last_of(driver.run(*driver.open(1, TEXT, voice="misfit")), 1)
    assert isinstance(failed, Failed) and sentence in failed.message
    assert isinstance(last_of(driver.run(*driver.open(2, TEXT, voice="bert")), 2), Done)


def test_a_voice_that_is_no_number_is_refused(driver: Driver, folder: VoiceFolder) -> None:
    """A clone whose embedding is not finite fails alone, and other rows' memory stays finite."""
    before = pcm_of(driver.run(*driver.open(1, TEXT, voice="anna")), 1)
    write_file(folder.file("broken"), Cloned(torch.full((64,), torch.nan)).to_bytes())
    failed = last_of(driver.run(*driver.open(2, TEXT, voice="broken")), 2)
    after = pcm_of(driver.run(*driver.open(3, TEXT, voice="anna")), 3)
    assert after == before
    assert isinstance(failed, Failed) and "not finite" in failed.message


def test_the_least_used_is_forgotten(folder: VoiceFolder) -> None:
    """A cache of two voices keeps the two that were used last."""
    write_file(folder.file("carl"), clone(3).to_bytes())
    voices = VoiceCache(read_model_config(REFERENCE / BASE), folder, max_clones=2)
    for name in ("anna", "bert", "anna", "carl", "anna", "bert"):
        voices.find(name, None)
    assert (voices.counts.hits, voices.counts.misses) == (2, 4)


def test_the_cloner_s_voice_is_the_engine_s(driver: Driver, folder: VoiceFolder) -> None:
    """A voice that a checkpoint's encoders make can be spoken by that checkpoint."""
    samples = torch.sin(torch.arange(24_000) * 0.1) * 0.3
    heard = load_reference_encoder(REFERENCE / BASE).clone(samples, "a tone")
    write_file(folder.file("heard"), heard.to_bytes())
    assert isinstance(last_of(driver.run(*driver.open(1, TEXT, voice="heard")), 1), Done)
