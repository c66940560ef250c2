"""The published voices of Kokoro and the files that they are loaded from.

The server process also imports this module, which needs neither the network nor ONNX Runtime.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.extras import install_hint
from voiceagent_tts.hub import ModelId, check_files, download_model, stored_folder
from voiceagent_tts.seam.events import VoiceDetails

NAME = "kokoro"
"""Name of the published files in `models download`."""
_PACKAGES = ("hibari", "espeakng_loader", "onnxruntime", "huggingface_hub")

_LANGUAGES = {"a": "en-us", "b": "en-gb", "e": "es", "f": "fr", "h": "hi", "i": "it", "p": "pt-br"}
"""Language by the first letter of a name; nothing here reads Japanese (j) and Mandarin (z)."""
_NAMES = """
af_heart af_bella af_nicole af_aoede af_kore af_sarah af_nova af_sky af_alloy af_jessica af_river
am_michael am_fenrir am_puck am_echo am_eric am_liam am_onyx am_santa am_adam
bf_emma bf_isabella bf_alice bf_lily bm_george bm_fable bm_lewis bm_daniel
ef_dora em_alex em_santa ff_siwis hf_alpha hf_beta hm_omega hm_psi if_sara im_nicola
pf_dora pm_alex pm_santa
jf_alpha jf_gongitsune jf_nezumi jf_tebukuro jm_kumo
zf_xiaobei zf_xiaoni zf_xiaoxiao zf_xiaoyi zm_yunjian zm_yunxi zm_yunxia zm_yunyang
""".split()
"""All voices, those of a language together; the first one of each is its default.

Source: VOICES.md of hexgrad/Kokoro-82M, in the order of its grades where they are above the rest.
"""
SPOKEN = tuple(
    VoiceDetails(name, "speaker", _LANGUAGES[name[0]], "female" if name[1] == "f" else "male")
    for name in _NAMES
    if name[0] in _LANGUAGES
)
"""The voices whose language is read here, the default first."""

PUBLISHED = ModelId(
    "onnx-community/Kokoro-82M-v1.0-ONNX",
    "1939ad2a8e416c0acfeecc08a694d14ef25f2231",
    ("onnx/model_quantized.onnx", *(f"voices/{voice.name}.bin" for voice in SPOKEN)),
)
"""The commit of 2025-02 and its files: 92 MB of weights in 8 bits, and 0.5 MB for each voice."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of Kokoro: the ONNX file, and the folder with `NAME.bin` of each voice."""

    model: Path
    voices: Path


def is_installed() -> bool:
    """Whether the packages of extra `kokoro` are installed."""
    return not _missing_packages()


def _missing_packages() -> list[str]:
    return [name for name in _PACKAGES if importlib.util.find_spec(name) is None]


def is_stored() -> bool:
    """Whether the published files are on this machine; never uses the network."""
    return is_installed() and _stored() is not None


def find(model: str | None) -> Files:
    """Return the files of Kokoro; download the published ones if they are not on this machine.

    What was downloaded is checked against the hub's checksums. A given folder has one ONNX file and
    the voices, in it or in folders of it.

    Raises:
        CheckpointError: the folder has no such files, or they cannot be downloaded, or packages of
            the extra are missing.
    """
    for missing in _missing_packages():
        raise CheckpointError(
            f"engine kokoro: the package {missing!r} is missing; {install_hint('server', 'kokoro')}"
        )
    if model is None:
        return _stored() or _download()
    if not Path(model).is_dir():
        raise CheckpointError(
            f"engine kokoro: expected the folder of a Kokoro-82M v1.0, got {model[:200]}; leave "
            f"--model out to use {PUBLISHED.repo}"
        )
    return _required(Path(model))


def _stored() -> Files | None:
    folder = stored_folder(PUBLISHED)
    return None if folder is None else _found(folder)


def _download() -> Files:
    folder = download_model(PUBLISHED)
    check_files(folder)
    return _required(folder)


def _required(folder: Path) -> Files:
    files = _found(folder)
    if files is None:
        raise CheckpointError(
            f"{folder}: expected an ONNX file of Kokoro-82M v1.0 and voices such as "
            f"voices/{SPOKEN[0].name}.bin; see docs/kokoro.md"
        )
    return files


def _found(folder: Path) -> Files | None:
    models = sorted(folder.rglob("*.onnx"))
    voices = sorted(folder.rglob("[a-z][fm]_*.bin"))
    return Files(models[0], voices[0].parent) if models and voices else None
