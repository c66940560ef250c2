"""Which voices there are, and where their files are found."""

from pathlib import Path

import pytest

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.kokoro.published import find


def test_a_folder_of_any_layout_is_found(tmp_path: Path) -> None:
    """Model and voices may lie in it or in folders of it, as on the hub and as in a release."""
    for layout in ("", "onnx/"), ("voices/", ""), ("voices/", "onnx/"):
        folder = tmp_path / layout[0] / layout[1] / "files"
        for name in (f"{layout[0]}af_heart.bin", f"{layout[1]}any-name.onnx"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        files = find(str(folder))
        assert files.model == folder / f"{layout[1]}any-name.onnx"
        assert files.voices == (folder / f"{layout[0]}").resolve()


@pytest.mark.parametrize(
    "names", [(), ("model.onnx",), ("af_heart.bin",), ("voices.bin", "m.onnx")]
)
def test_a_folder_without_them_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match="expected an ONNX file of Kokoro"):
        find(str(tmp_path))
    with pytest.raises(CheckpointError, match="leave --model out"):
        find(str(tmp_path / "nothing"))
