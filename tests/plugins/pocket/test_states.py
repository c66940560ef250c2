"""Voices: the catalogue's states, and clones in files of their own."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from testbed.pocket import SMALL_MODEL
from testbed.segment_driving import Driver, credit, pcm_of
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.clone_files import delete_file, write_file
from voiceagent_tts.plugins.clones.cloner import _answer
from voiceagent_tts.plugins.clones.messages import CheckVoiceFile, CloneRefused, VoiceFile
from voiceagent_tts.plugins.pocket.published import config_path
from voiceagent_tts.plugins.pocket.states import (
    PocketModel,
    VoiceStates,
    make_clone,
    unpack_state,
)
from voiceagent_tts.seam.commands import Append
from voiceagent_tts.seam.events import Done, Failed


@pytest.fixture(scope="module")
def voice_file(model: PocketModel) -> bytes:
    """A clone of a recording of noise."""
    generator = torch.Generator().manual_seed(3)
    return make_clone([model], 0.1 * torch.randn(36_000, generator=generator))


def test_a_clone_speaks_with_its_own_voice(
    driver: Driver, tmp_path: Path, voice_file: bytes
) -> None:
    """Its audio differs from the catalogue's, and a replaced voice is loaded again."""
    folder = VoiceFolder(tmp_path / "clones")
    write_file(folder.file("Ann"), voice_file)
    said = pcm_of(driver.run(driver.submit(1, "Hi.", voice="ann"), credit(1)), 1)
    assert said and said == pcm_of(driver.run(driver.submit(2, "Hi.", voice="Ann"), credit(2)), 2)
    assert said != pcm_of(driver.run(driver.submit(3, "Hi."), credit(3)), 3)
    write_file(folder.file("bert"), voice_file)
    delete_file(folder.file("ann"))
    (failed,) = driver.run(driver.submit(4, "Hi.", voice="ann"), credit(4))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.INVALID_VOICE
    assert "bert" not in failed.message  # it may be another key's


def test_a_replaced_clone_speaks_no_context_of_the_one_before(
    driver: Driver, tmp_path: Path, voice_file: bytes
) -> None:
    """A context that speaks already keeps its voice; one that was only opened is refused."""
    folder = VoiceFolder(tmp_path / "clones")
    write_file(folder.file("ann"), voice_file)
    version = folder.version("ann")
    begun = driver.submit(1, "Hi.", voice="ann", voice_version=version, more=True)
    first = pcm_of(driver.run(begun, credit(1)), 1)
    write_file(folder.file("ann"), b"another voice")
    (failed,) = driver.run(replace(begun, context=2), credit(2))
    assert isinstance(failed, Failed) and failed.code is ErrorCode.INVALID_VOICE
    assert "open a new context" in failed.message
    rest = driver.run(Append(1, "Hi.", 3, False, "en"))
    assert isinstance(rest[-1], Done) and first


def test_a_file_that_cannot_be_loaded_fails_its_context(driver: Driver, tmp_path: Path) -> None:
    """A later context loads it again, as it may have been replaced."""
    write_file(VoiceFolder(tmp_path / "clones").file("ann"), b"no voice")
    (failed,) = driver.run(driver.submit(1, "Hi.", voice="ann"), credit(1))
    assert isinstance(failed, Failed) and "expected a voice file of Pocket TTS" in failed.message
    assert isinstance(driver.run(driver.submit(2, "Hi."), credit(2))[-1], Done)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"key": "german"}, "made for the model german .*, got one made for english_2m"),
        ({"weights": "hf://other"}, r"made for the model english_2m_2026-10 \(hf://other\)"),
    ],
)
def test_a_clone_belongs_to_its_weights(
    model: PocketModel, voice_file: bytes, changed: dict[str, str], expected: str
) -> None:
    """With other weights it would be noise, so it is refused, with what to do."""
    with pytest.raises(InvalidRequestError, match=expected) as caught:
        unpack_state(voice_file, replace(model, **changed))
    assert caught.value.code is ErrorCode.INVALID_VOICE and "--replace" in caught.value.message


def test_a_file_for_some_models_is_refused_by_a_server_with_more(
    voice_file: bytes, tmp_path: Path
) -> None:
    """A voice that is stored must be able to speak every language of its server."""
    other = tmp_path / "french_mine.yaml"
    other.write_text(config_path(SMALL_MODEL).read_text())
    message = CheckVoiceFile(voice_file)
    assert _answer("pocket", SMALL_MODEL, message) == VoiceFile(voice_file)
    refused = _answer("pocket", f"{SMALL_MODEL},{other}", message)
    assert isinstance(refused, CloneRefused) and "made for the model french_mine" in refused.message


@pytest.mark.parametrize("content", [b"\x08\0\0\0\0\0\0\0{}      ", b"x" * 100])
def test_another_file_is_no_voice(model: PocketModel, content: bytes) -> None:
    """Whatever the file has, the answer is one sentence."""
    with pytest.raises(InvalidRequestError, match="expected a voice"):
        unpack_state(content, model)


def test_weights_that_cannot_clone_say_how_to_get_others(
    model: PocketModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights for everyone have no encoder of use; the sentence has the page with the terms."""
    monkeypatch.setattr(model.network, "has_voice_cloning", False)
    with pytest.raises(InvalidRequestError, match="accept the terms on https://") as caught:
        make_clone([model], torch.zeros(24_000))
    assert caught.value.code is ErrorCode.NOT_SUPPORTED


def test_a_state_is_loaded_once(model: PocketModel, tmp_path: Path) -> None:
    """The second context of a voice finds it loaded."""
    states = VoiceStates((SMALL_MODEL,), VoiceFolder(tmp_path))
    first = states.find("alba", model)
    assert first.result() and states.find("alba", model) is first
    states.close()
