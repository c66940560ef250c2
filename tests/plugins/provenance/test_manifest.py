"""C2PA manifests: files are signed, readable by C2PA's own reader, and keep their samples."""

import io
from pathlib import Path

import av
import numpy as np
import pytest

from testbed.c2pa_certificates import certificate_files, manifest_of, self_signed_credentials
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.provenance.manifest import MANIFEST_TYPES, credentials_of, sign
from voiceagent_tts.plugins.speech.containers import ContainerEncoder, ContainerFormat
from voiceagent_tts.protocol.messages import ProvenanceFields

PCM = (8_000 * np.sin(np.arange(24_000) / 20)).astype("<i2").tobytes()
PROVENANCE = ProvenanceFields(
    sha256="ab" * 32, model="qwen3-tts", time="2026-11-23T08:00:00+00:00", key_id="0123456789abcdef"
)


def file_of(container_format: ContainerFormat) -> bytes:
    """A complete file of one second."""
    encoder = ContainerEncoder(container_format)
    file = bytearray(encoder.push(PCM) + encoder.finish())
    encoder.write_length(file)
    return bytes(file)


def samples_of(file: bytes) -> np.ndarray:
    """Decode a file with FFmpeg: [S] int16."""
    with av.open(io.BytesIO(file)) as container:
        return np.concatenate([f.to_ndarray().reshape(-1) for f in container.decode(audio=0)])


@pytest.mark.parametrize("audio_format", ["wav", "mp3", "flac"])
def test_a_signed_file_says_what_it_is(audio_format: ContainerFormat) -> None:
    """The manifest has the kind of source, the model and the key; the sound is the same."""
    file = file_of(audio_format)
    signed = sign(self_signed_credentials(), file, audio_format, PROVENANCE)
    assertions = manifest_of(signed, MANIFEST_TYPES[audio_format])
    (action,) = assertions["c2pa.actions.v2"]["actions"]
    assert action["action"] == "c2pa.created"
    assert action["digitalSourceType"].endswith("/trainedAlgorithmicMedia")
    assert assertions["org.voiceagent-tts.provenance"] == PROVENANCE.model_dump()
    assert np.array_equal(samples_of(signed), samples_of(file))


def test_certificates_of_ones_own_are_read(tmp_path: Path) -> None:
    """The settings name PEM files; without them nothing is signed."""
    settings = Settings.model_validate(certificate_files(tmp_path))
    assert credentials_of(settings) == self_signed_credentials()
    assert credentials_of(Settings()) is None


@pytest.mark.parametrize("broken", ["chain.pem", "key.pem"])
@pytest.mark.parametrize("content", [None, "not PEM"])
def test_bad_certificates_stop_the_start(tmp_path: Path, broken: str, content: str | None) -> None:
    """A missing or broken file is an error that names the settings."""
    settings = Settings.model_validate(certificate_files(tmp_path))
    if content is None:
        (tmp_path / broken).unlink()
    else:
        (tmp_path / broken).write_text(content)
    with pytest.raises(InvalidRequestError, match="c2pa_"):
        credentials_of(settings)
