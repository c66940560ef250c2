"""`voiceagent-tts voices add`, `design`, `remove` and `export`: the clones of this machine.

A cloned voice holds the speaker embedding and codes of its reference, computed once and stored as a
safetensors file. A running server offers it for the next context. Files and names are checked
before torch is loaded, which takes seconds.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voiceagent_tts.cli import voices
from voiceagent_tts.cli.arguments import valid_unicode
from voiceagent_tts.errors import CheckpointError, ErrorCode, InvalidRequestError
from voiceagent_tts.extras import install_hint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voiceagent_tts.clones import VoiceFolder
    from voiceagent_tts.config import Settings
    from voiceagent_tts.model.prompt import Cloned
    from voiceagent_tts.plugins.pocket.states import PocketModel

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the voice, as for `--voice`.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="Replace the stored or built-in voice NAME, if any.")
]


def add_commands(_: typer.Typer) -> None:
    """Add the commands that make, remove and export voices to those of `voices`."""
    for command in (add, design, remove, export):
        voices.app.command()(command)


def add(
    name: Name,
    reference: Annotated[
        Path,
        typer.Argument(
            metavar="REFERENCE",
            help="Recording of one voice: WAV, FLAC, MP3 or Ogg, best 3 to 30 s long (at least "
            "0.5 s, at most 60 s and 64 MiB). Or a file written by `export`.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(help="Base model that will speak the voice: folder or id. Not for pocket."),
    ] = None,
    text: Annotated[
        str,
        typer.Option(
            callback=valid_unicode,
            help="Transcript of the reference; with it, the speaking style is cloned too.",
        ),
    ] = "",
    consent: Annotated[
        str,
        typer.Option(
            callback=valid_unicode,
            help="Who agreed to this clone, in one line; required, and stored with the voice.",
        ),
    ] = "",
    replace: Replace = False,
) -> None:
    """Clone a voice from a recording and save it as NAME.

    A clone is a copy of a person's voice: --consent says that the person agreed.

    Warns of a recording that is short, long, noisy or clipped, or that is not mostly speech, and
    removes the silence around it. Where VOICEAGENT_TTS_ENGINE is pocket, the voice is cloned for
    all models of the settings, and the transcript is not used.
    """
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.clones import CLONE_SUFFIX
    from voiceagent_tts.plugins.recordings.file_reader import REFERENCE_LIMITS, read_audio
    from voiceagent_tts.reading import read_file

    settings = read_settings({})
    agreed = _checked_consent(consent)
    _check_name(name, replace, settings)
    data = read_file(reference, REFERENCE_LIMITS.max_bytes)
    if reference.suffix.lower() == CLONE_SUFFIX:
        _import(name, data, settings, agreed)
        return
    if model is None and settings.engine != "pocket":
        raise InvalidRequestError(
            "--model: expected the Base model that will speak the voice, such as "
            "Qwen/Qwen3-TTS-12Hz-0.6B-Base; for Pocket TTS, set VOICEAGENT_TTS_ENGINE=pocket"
        )
    samples = _examined(read_audio(data), "" if settings.engine == "pocket" else text)
    if model is not None and settings.engine != "pocket":
        _save(name, _clone(samples, text, model), settings, agreed)
    else:
        _store_pocket(name, _pocket_clone(samples, settings), settings, agreed)


def design(
    name: Name,
    instruct: Annotated[
        str,
        typer.Option(
            callback=valid_unicode, help="Description of the voice: age, timbre, speaking style."
        ),
    ],
    text: Annotated[
        str, typer.Option(callback=valid_unicode, help="Sample text for the designed voice.")
    ],
    model: Annotated[str, typer.Option(help="VoiceDesign model: folder or id.")],
    base: Annotated[str, typer.Option(help="Base model that will speak the voice: folder or id.")],
    seed: Annotated[int, typer.Option(help="A different seed gives a different voice.")] = 0,
    replace: Replace = False,
) -> None:
    """Design a voice from a description, and save a clone of it that stays constant.

    It needs no --consent: no person's recording is copied, so there is nobody who could agree.
    """
    from voiceagent_tts.cli.settings import read_settings

    settings = read_settings({}).model_copy(update={"engine": "qwen3"})
    _check_name(name, replace, settings)
    _save(name, _clone(_design(instruct, text, model, seed), text, base), settings)


def remove(name: Name) -> None:
    """Delete a cloned voice, and the record of who added it."""
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.clones import stored_name, unknown_clone
    from voiceagent_tts.plugins.clones.clone_files import changing, delete_file
    from voiceagent_tts.plugins.clones.stored_voices import remove_voice
    from voiceagent_tts.plugins.clones.voice_records import VoiceRecords
    from voiceagent_tts.voices import name_hint

    folder = _folder_of(read_settings({}))
    if not delete_file(folder.file(name)):
        raise unknown_clone(name, name_hint(name, folder.names()))
    with changing(folder):
        remove_voice(VoiceRecords(folder), stored_name(name))


def export(
    name: Name,
    target: Annotated[Path, typer.Argument(metavar="FILE.safetensors", help="File to write.")],
) -> None:
    """Write a cloned voice to a file for `voices add` on another machine."""
    from voiceagent_tts.cli.files import check_target
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.clones import CLONE_SUFFIX
    from voiceagent_tts.replacing import replacing

    check_target(target, (CLONE_SUFFIX,))
    stored = _folder_of(read_settings({})).read(name)
    with replacing(target) as unfinished:
        unfinished.write_bytes(stored)


def _check_name(name: str, replace: bool, settings: "Settings") -> None:
    """Refuse an invalid name, and a taken one unless it is to be replaced."""
    from voiceagent_tts.clones import clone_name

    normal = clone_name(name)
    if replace:
        return
    if normal in _folder_of(settings):
        taken = f"a voice {normal!r} exists"
    elif normal in _built_in_names(settings):
        taken = f"{normal!r} is a built-in voice"
    else:
        return
    raise InvalidRequestError(
        f"{taken}; choose another name, or add --replace", code=ErrorCode.INVALID_VOICE
    )


def _built_in_names(settings: "Settings") -> set[str]:
    """Voices of the embedded engine, and of the configured models that are on this machine."""
    from voiceagent_tts.espeak.catalogue import LANGUAGES, PRESETS
    from voiceagent_tts.hibari.published import published_voices
    from voiceagent_tts.hub import find_model
    from voiceagent_tts.kokoro.published import SPOKEN
    from voiceagent_tts.model.config import read_model_config
    from voiceagent_tts.plugins.pocket.published import models_of, voices_for
    from voiceagent_tts.voices import DESIGNED_VOICE

    names = {*PRESETS, *LANGUAGES, DESIGNED_VOICE}
    if settings.engine == "pocket":
        return names | {voice.name for voice in voices_for(models_of(settings))}
    if settings.engine == "hibari":
        return names | published_voices().keys()
    if settings.engine == "kokoro":
        return names | {voice.name for voice in SPOKEN}
    for model in settings.models:
        with suppress(CheckpointError):  # its voices are unknown until it is downloaded
            names.update(read_model_config(find_model(model)).talker_config.spk_id)
    return names


def _checked_consent(consent: str) -> str:
    """The statement that the person agreed."""
    from voiceagent_tts.plugins.clones.voice_records import is_one_line

    if not consent.strip() or not is_one_line(consent.strip()):
        raise InvalidRequestError(
            "--consent: expected who agreed to this clone, in one line; try --consent 'Anna Berg "
            "agreed by letter of 3 May'",
            code=ErrorCode.CONSENT_REQUIRED,
        )
    return consent.strip()


def _save(name: str, voice: "Cloned", settings: "Settings", consent: str | None = None) -> None:
    codes = voice.reference_codes
    content = "timbre only" if codes is None else f"timbre and {len(codes)} frames of speech"
    _store(name, voice.to_bytes(), content, settings, consent)


def _store(
    name: str, voice_file: bytes, content: str, settings: "Settings", consent: str | None
) -> None:
    from voiceagent_tts.clones import clone_name
    from voiceagent_tts.plugins.clones.clone_files import changing
    from voiceagent_tts.plugins.clones.stored_voices import add_voice
    from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords

    folder, saved = _folder_of(settings), clone_name(name)
    with changing(folder):
        add_voice(VoiceRecords(folder), VoiceRecord(name=saved, consent=consent), voice_file)
    sys.stderr.write(f"saved the voice {saved} ({content}); use it with --voice {saved}\n")


def _import(name: str, voice_file: bytes, settings: "Settings", consent: str) -> None:
    """Check and store a voice that was exported."""
    if settings.engine != "pocket":
        from voiceagent_tts.model.prompt import Cloned

        _save(name, Cloned.from_bytes(voice_file), settings, consent)
        return
    from voiceagent_tts.plugins.pocket.states import unpack_state

    for model in _pocket_models(settings):
        unpack_state(voice_file, model)
    _store_pocket(name, voice_file, settings, consent)


def _store_pocket(name: str, voice_file: bytes, settings: "Settings", consent: str) -> None:
    from voiceagent_tts.plugins.pocket.published import models_of

    _store(name, voice_file, f"for {', '.join(models_of(settings))}", settings, consent)


def _pocket_clone(samples: "npt.NDArray[np.float32]", settings: "Settings") -> bytes:
    import torch

    from voiceagent_tts.plugins.pocket.states import make_clone

    with _working("cloning the voice with Pocket TTS"):
        return make_clone(_pocket_models(settings), torch.from_numpy(samples.copy()))


def _pocket_models(settings: "Settings") -> "list[PocketModel]":
    from voiceagent_tts.plugins.pocket.kind import KIND
    from voiceagent_tts.plugins.pocket.load import load_model
    from voiceagent_tts.plugins.pocket.published import models_of

    KIND.fetch(settings)
    return [load_model(model) for model in models_of(settings)]


def _examined(samples: "npt.NDArray[np.float32]", text: str) -> "npt.NDArray[np.float32]":
    """Print the measurements of a recording and a warning for each bad one; trim its silence."""
    from voiceagent_tts.plugins.clones.transcript import recording_problems
    from voiceagent_tts.plugins.recordings.reference import examine_reference, find_speech

    try:
        speech = find_speech(samples)
    except ModuleNotFoundError:
        speech = None
        sys.stderr.write(
            "note: speech and noise of the recording were not measured, and silence was not "
            f"trimmed: the package 'silero-vad' is missing; try {install_hint('qwen3')}\n"
        )
    examined = examine_reference(samples, speech)
    sys.stderr.write(f"recording: {examined.summary()}\n")
    unlikely = recording_problems(text, examined.samples, examined.speech_s) if text else []
    for problem in (*examined.problems(), *unlikely):
        sys.stderr.write(f"warning: {problem}\n")
    return examined.samples


def _clone(samples: "npt.NDArray[np.float32]", text: str, model: str) -> "Cloned":
    import torch

    from voiceagent_tts.hub import fetch_model
    from voiceagent_tts.plugins.recordings.clone import clone_voice

    folder = fetch_model(model)
    with _working(f"cloning the voice with {folder.name}"):
        return clone_voice(folder, torch.from_numpy(samples.copy()), text)


def _design(instruct: str, text: str, model: str, seed: int) -> "npt.NDArray[np.float32]":
    from voiceagent_tts.hub import fetch_model
    from voiceagent_tts.model.checkpoint import load_checkpoint
    from voiceagent_tts.model.codec import load_codec
    from voiceagent_tts.plugins.clones.design import design_voice

    folder = fetch_model(model)
    with _working(f"designing the voice with {folder.name}"):
        designer, codec = load_checkpoint(folder), load_codec(folder)
        return design_voice(designer, codec, instruct, text, None, seed).numpy()


@contextmanager
def _working(what: str) -> Iterator[None]:
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def _folder_of(settings: "Settings") -> "VoiceFolder":
    """The folder of the cloned voices of these settings."""
    from voiceagent_tts.clones import VoiceFolder

    return VoiceFolder(settings.clones_folder)
