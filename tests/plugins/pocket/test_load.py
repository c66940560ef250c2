"""Loading: int8, rows that the CPU can speak, logs without words, and clear refusals."""

import logging
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from testbed.pocket import SMALL_MODEL
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.plugins.pocket.load import load_model, load_pocket
from voiceagent_tts.plugins.pocket.speech import Speech


def load(tmp_path: Path, **options: object) -> object:
    """Load an engine over the small model."""
    models = (SMALL_MODEL,)
    return load_pocket(list, lambda event: None, voices=str(tmp_path), models=models, **options)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:torch")
@pytest.mark.parametrize("has_torchao", [False, True])
def test_int8_weights_speak(monkeypatch: pytest.MonkeyPatch, *, has_torchao: bool) -> None:
    """The language model's layers have PyTorch's kernels, torchao or not, and audio comes out."""
    if has_torchao:
        torchao = ModuleType("torchao")
        torchao.__spec__ = ModuleSpec("torchao", None)
        monkeypatch.setitem(sys.modules, "torchao", torchao)
    model = load_model(SMALL_MODEL, quantize=True)
    layer = model.network.flow_lm.transformer.layers[0]
    assert repr(layer).count("DynamicQuantizedLinear") == 4
    assert not any(isinstance(each, torch.nn.Linear) for each in layer.modules())
    state = model.network.get_state_for_audio_prompt("alba")
    assert Speech(model.network, state, "Hello.").next_frame()


def test_the_package_logs_no_words(caplog: pytest.LogCaptureFixture) -> None:
    """Its warning of a long part quotes the text."""
    model = load_model(SMALL_MODEL)
    state = model.network.get_state_for_audio_prompt("alba")
    Speech(model.network, state, "secret " * 200).next_frame()
    assert "secret" not in caplog.text
    assert not logging.getLogger("pocket_tts.models.text_chunking").isEnabledFor(logging.WARNING)


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Weights that are no weights end in one sentence with the model's name."""
    wrong = tmp_path / "english_wrong.yaml"
    wrong.write_text("weights_path: /nowhere.safetensors\n")
    with pytest.raises(CheckpointError, match="english_wrong.yaml: cannot be loaded"):
        load_model(str(wrong))
