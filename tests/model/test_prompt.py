"""Prompts, beside what `tests/engine/test_parity.py` says of every kind of voice and layout."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save

from testbed.parity_reference import reference_voice
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.prompt import (
    Cloned,
    Designed,
    Preset,
    Prompt,
    PromptBuilder,
    Voice,
    language_name,
)
from voiceagent_tts.model.tokenizer import ROLE_TOKENS

TEXT = "Hello there, my friend!"
EOS = 360  # tts_text_eod
THINK, THINK_BOS = 170, 172
ENGLISH, SICHUAN, ERIC = 66, 78, 864


def builder(checkpoint: Checkpoint) -> PromptBuilder:
    return PromptBuilder(checkpoint.config, checkpoint.tokenizer)


def text_ids(checkpoint: Checkpoint, text: str = TEXT) -> list[int]:
    return checkpoint.tokenizer.encode_turn("assistant", text)[ROLE_TOKENS:]


def columns(prompt: Prompt) -> list[tuple[int, int]]:
    return list(zip(prompt.text_ids, prompt.codec_ids, strict=True))


@pytest.mark.parametrize(
    ("language", "spoken"),
    [("Chinese", SICHUAN), ("zh-CN", SICHUAN), (None, SICHUAN), ("auto", SICHUAN), ("en", ENGLISH)],
)
def test_a_dialect_s_speaker_speaks_it(
    custom_voice: Checkpoint, language: str | None, spoken: int
) -> None:
    """The speaker of a dialect uses it if Chinese or no language is requested."""
    prompt = builder(custom_voice).build(TEXT, Preset("Eric"), language)
    assert prompt.codec_ids[ROLE_TOKENS : ROLE_TOKENS + 3] == (THINK, THINK_BOS, spoken)
    assert ERIC in prompt.codec_ids


@pytest.mark.parametrize("voice", [reference_voice(), Cloned(torch.zeros(64))])
def test_an_open_text_can_start_early(base: Checkpoint, voice: Voice) -> None:
    """The first `ids_to_start` ids give the whole text's prompt; the other ids are fed later."""
    text = "The quick brown fox jumps over the lazy dog 42 times; " * 2
    turn = base.tokenizer.encode_turn("assistant", text)
    build = builder(base)
    enough = build.ids_to_start(voice)
    assert ROLE_TOKENS < enough < len(turn)
    early = build.build_turn(turn[:enough], voice, "en", is_streaming=True, is_open=True)
    whole = build.build(text, voice, "en", is_streaming=True)
    assert columns(early) == columns(whole)
    assert (*early.trailing_text_ids, *turn[enough:], EOS) == whole.trailing_text_ids


@pytest.mark.parametrize("is_streaming", [True, False])
@pytest.mark.parametrize("frames", [2, 17, None])
def test_every_clone_s_prompt_begins_with_its_prefix(
    base: Checkpoint, frames: int | None, is_streaming: bool
) -> None:
    """The prefix is everything that does not depend on the text, for a reference of any length.

    It is always shorter than the whole prompt.
    """
    voice = reference_voice()
    assert voice.reference_codes is not None
    voice = replace(voice, reference_codes=voice.reference_codes[:frames])
    prefix = builder(base).build_prefix(voice, "en", is_streaming=is_streaming)
    assert prefix.speaker_embedding is voice.speaker_embedding
    one, other = (
        builder(base).build(text, voice, "en", is_streaming=is_streaming) for text in (TEXT, "Oh?")
    )
    assert columns(one)[: len(prefix)] == columns(other)[: len(prefix)] == columns(prefix)
    assert len(prefix) < min(len(one), len(other))
    assert prefix.reference_codes is not None
    if not is_streaming:
        assert len(prefix.reference_codes) == 0
        return
    beside_text = len(text_ids(base, voice.reference_text)) - 1  # the first id is beside the start
    assert len(prefix.reference_codes) == min(beside_text, len(voice.reference_codes) - 1)


@pytest.mark.parametrize("voice", [Designed(), Cloned(torch.zeros(64))])
def test_a_voice_of_another_kind_is_refused(custom_voice: Checkpoint, voice: Voice) -> None:
    with pytest.raises(InvalidRequestError, match="expected a preset voice"):
        builder(custom_voice).build(TEXT, voice)


def test_reference_codes_need_their_text(base: Checkpoint) -> None:
    with pytest.raises(InvalidRequestError, match="expected reference_text with reference_codes"):
        builder(base).build(TEXT, replace(reference_voice(), reference_text=""))


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("English", "english"),
        ("EN", "english"),
        ("pt-BR", "portuguese"),
        ("zh_CN", "chinese"),
        ("sichuan_dialect", "sichuan_dialect"),
        ("Auto", None),
        ("", None),
        (None, None),
    ],
)
def test_languages_go_by_name_and_code(language: str | None, name: str | None) -> None:
    assert language_name(language) == name


@pytest.mark.parametrize("has_reference", [True, False])
def test_a_cloned_voice_can_be_stored(has_reference: bool) -> None:
    voice = reference_voice("Grüße, 世界")
    if not has_reference:
        voice = Cloned(voice.speaker_embedding)
    read = Cloned.from_bytes(voice.to_bytes())
    assert torch.equal(read.speaker_embedding, voice.speaker_embedding)
    assert read.reference_text == voice.reference_text
    if voice.reference_codes is None:
        assert read.reference_codes is None
    else:
        assert read.reference_codes is not None
        assert torch.equal(read.reference_codes, voice.reference_codes)


def with_reference(**others: torch.Tensor) -> bytes:
    """A voice file with a reference whose text or codes are others than `to_bytes` writes."""
    codes = others.get("codes", torch.zeros(2, 16, dtype=torch.int32))
    text = others.get("text", torch.tensor([65]))
    tensors = {"reference_codes": codes, "reference_text": text}
    return save({"speaker_embedding": torch.zeros(2), **tensors})


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\x80\x04N.",
        b"\x08\0\0\0\0\0\0\0{}      ",
        Cloned(torch.tensor([0.5, torch.inf])).to_bytes(),
        save({"speaker_embedding": torch.tensor([1e300], dtype=torch.float64)}),
        save({"speaker_embedding": torch.zeros(2).to(torch.float8_e4m3fn)}),
        save({"speaker_embedding": torch.zeros(2, dtype=torch.int64)}),
        with_reference(text=torch.zeros(3)),
        with_reference(text=torch.tensor(10**9)),  # bytes(10**9) would be a gigabyte of zeros
        with_reference(codes=torch.full((2, 16), torch.nan)),
    ],
)
def test_other_bytes_are_no_voice(stored: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="expected a voice file"):
        Cloned.from_bytes(stored)
