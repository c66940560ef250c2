"""Chooses the engine if no setting names one: the best voice that this machine can speak."""

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass

from voiceagent_tts.config import Settings
from voiceagent_tts.extras import install_hint
from voiceagent_tts.seam.engine_kind import EngineKind, engine_kinds, kind_of

_KOKORO = install_hint("server", "kokoro")
_QWEN3_MODELS = ("Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice")
"""Models with voices of their own, the best first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings with an engine, and the reason for it, with how to get a better voice.

    The reason is None if a setting decided.
    """

    settings: Settings
    reason: str | None = None


def choose_engine(settings: Settings, *, may_download: bool = False) -> Choice:
    """Choose Qwen3-TTS, hibari, a plugin's engine or espeak: the first that this machine can run.

    A named engine decides, and so do models without one, which are Qwen3-TTS's. With hibari, Kokoro
    speaks other languages if it is installed, and espeak the rest. With `may_download` installed
    engines are chosen before their files are here: Kokoro, else that of a plugin instead of hibari.
    """
    if settings.engine is not None:
        return Choice(settings)
    if settings.models:
        return Choice(settings.model_copy(update={"engine": "qwen3"}))
    if (model := _stored_qwen3()) is not None:
        update = {"engine": "qwen3", "models": (model,)}
        return Choice(settings.model_copy(update=update), f"voice: {model} on the GPU")
    has_kokoro = _can_speak(kind_of("kokoro"), settings, may_download)
    other = _installed_other()
    if kind_of("hibari").is_installed() and (has_kokoro or not (may_download and other)):
        return _hibari(settings, has_kokoro=has_kokoro)
    if other is None:
        remedy = f"for a natural voice: {install_hint('server', 'espeak', 'hibari')}"
    elif _can_speak(other, settings, may_download):
        reason = f"voice: {other.natural_voices}; for more languages: Qwen3-TTS on an NVIDIA GPU"
        return Choice(settings.model_copy(update={"engine": other.name}), reason)
    else:
        remedy = "for a natural voice: `voiceagent-tts serve --download`"
    reason = f"voice: espeak-ng, which sounds like a robot; {remedy}"
    return Choice(settings.model_copy(update={"engine": "espeak"}), reason)


def _hibari(settings: Settings, *, has_kokoro: bool) -> Choice:
    """Choose hibari for English, and the engines for other languages that this machine has."""
    if has_kokoro or settings.beside:
        update = {"engine": "hibari", "beside": "kokoro"}
        natural = "hibari, natural English; Kokoro for Spanish, French, Hindi, Italian, Portuguese"
        more = "for more: Qwen3-TTS on an NVIDIA GPU"
    else:
        update = {"engine": "hibari"}
        natural = "hibari, natural English"
        command = "`voiceagent-tts serve --download`"
        is_near = kind_of("kokoro").is_installed() or _installed_other()
        more = f"for more natural languages: {command if is_near else _KOKORO}"
    reason = f"voices: {natural}; robotic espeak-ng for the rest; {more}"
    return Choice(settings.model_copy(update=update), reason)


def _can_speak(kind: EngineKind, settings: Settings, may_download: bool) -> bool:
    return kind.is_installed() and (may_download or kind.is_stored(settings))


def _installed_other() -> EngineKind | None:
    natural = (kind for kind in engine_kinds().values() if kind.natural_voices)
    return next((kind for kind in natural if kind.is_installed()), None)


def _stored_qwen3() -> str | None:
    packages = map(importlib.util.find_spec, ("torch", "transformers", "huggingface_hub"))
    if not all(packages) or not _has_gpu():
        return None
    from voiceagent_tts.hub import parse_id, stored_folder

    stored = (model for model in _QWEN3_MODELS if stored_folder(parse_id(model)))
    return next(stored, None)


def _has_gpu() -> bool:
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        result = subprocess.run([program, "-L"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0 and b"GPU" in result.stdout
