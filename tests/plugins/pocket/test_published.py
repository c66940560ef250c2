"""Models and voices of the catalogue, read without importing pocket-tts."""

from pathlib import Path

import pytest

from testbed.pocket import SMALL_MODEL
from voiceagent_tts.errors import CheckpointError, InvalidRequestError
from voiceagent_tts.plugins.pocket.published import (
    LANGUAGE_MODELS,
    check_models,
    is_known,
    language_of,
    model_key,
    voices_for,
    weights_of,
)


def test_the_catalogue_is_that_of_the_package() -> None:
    """No voice is missing, and each language's own voice comes first."""
    # Imported here: collection would take seconds longer, in every worker.
    from pocket_tts.utils.utils import _ORIGINS_OF_PREDEFINED_VOICES

    names = {voice.name for voice in voices_for(("english",))}
    assert names == _ORIGINS_OF_PREDEFINED_VOICES.keys()
    first = {model: voices_for((model,))[0].name for model in LANGUAGE_MODELS}
    assert first == {
        "english": "alba",
        "french": "estelle",
        "german": "juergen",
        "portuguese": "rafael",
        "italian": "giovanni",
        "spanish": "lola",
        "dutch": "daan",
    }


def test_every_model_of_a_language_exists_with_pinned_files() -> None:
    """Seven languages; each file of the hub has a commit."""
    codes = [language_of(model) for model in LANGUAGE_MODELS]
    assert codes == ["en", "fr", "de", "pt", "it", "es", "nl"]
    for model in LANGUAGE_MODELS:
        weights = weights_of(model)
        files = [*weights.shared, weights.cloning, weights.plain]
        assert all(file is not None and len(file.revision or "") == 40 for file in files)
    assert is_known(SMALL_MODEL) and not is_known("klingon") and not is_known("../english")


def test_a_configuration_file_is_a_model_without_a_catalogue(tmp_path: Path) -> None:
    """Its name begins with its language; files in local folders need no hub."""
    path = tmp_path / "german_mine.yaml"
    path.write_text(
        "weights_path: /weights.safetensors\n"
        "flow_lm: {lookup_table: {tokenizer_path: /tokenizer.json}}\n"
    )
    assert (model_key(str(path)), language_of(str(path))) == ("german_mine", "de")
    assert voices_for((str(path),)) == ()
    weights = weights_of(str(path))
    assert (weights.shared, weights.cloning, weights.plain) == ((), None, None)


@pytest.mark.parametrize("content", ["[]", "flow_lm: 3", "\0"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    """The sentence names the file."""
    path = tmp_path / "english.yaml"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=r"english\.yaml: expected a configuration file"):
        weights_of(str(path))


def test_what_is_no_model_is_refused() -> None:
    """The sentence lists what exists."""
    with pytest.raises(CheckpointError, match="got 'klingon'; known are dutch, dutch_24l, english"):
        check_models(("klingon",))
    with pytest.raises(CheckpointError, match="no such file"):
        check_models(("/nowhere/english.yaml",))
    with pytest.raises(InvalidRequestError, match="english and english_2m_2026-10; leave one out"):
        check_models(("english", "french", SMALL_MODEL))
