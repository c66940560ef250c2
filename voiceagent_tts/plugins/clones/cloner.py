"""`python -m voiceagent_tts.plugins.clones.cloner ENGINE MODEL`: make or check one voice file.

Reads a message of `plugins.clones.messages` from standard input and writes the answer to standard
output. Cloning is rare and loads encoders of several hundred megabytes, so it happens in a process
of its own, at a low priority: the engine keeps its memory and its cores.
"""

import contextlib
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.offspring import Following
from voiceagent_tts.plugins.clones.messages import (
    CheckVoiceFile,
    CloneRecording,
    CloneRefused,
    VoiceFile,
    decode,
    encode,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

_NICENESS = 10


def main() -> int:
    """Answer the message on standard input."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(_NICENESS)
    Following(os.getppid())()
    gc.disable()  # as in `garbage.without_collection`; the process ends soon
    message = decode(sys.stdin.buffer.read())
    with contextlib.redirect_stdout(sys.stderr):  # packages may print
        answer = _answer(sys.argv[1], sys.argv[2], message)
    sys.stdout.buffer.write(encode(answer))
    return 0


def _answer(engine: str, model: str, message: object) -> VoiceFile | CloneRefused:
    try:
        match message:
            case CloneRecording():
                return _clone(engine, model, message)
            case CheckVoiceFile(voice_file):
                check = _check_pocket if engine == "pocket" else _check
                return check(model, voice_file)
            case _:
                raise InvalidRequestError("expected a recording or a voice file")
    except VoiceAgentError as error:
        return CloneRefused(error.code, error.message)


def _clone(engine: str, model: str, message: CloneRecording) -> VoiceFile:
    import numpy as np
    import torch

    from voiceagent_tts.plugins.recordings.reference import examine_reference

    recording, text = np.frombuffer(message.samples, "<f4"), message.text
    examined = examine_reference(recording, _speech_of(recording))
    problems = examined.problems()
    trimmed = torch.from_numpy(examined.samples.copy())
    if engine == "pocket":
        voice_file = _pocket_clone(model, trimmed)
    else:
        from voiceagent_tts.plugins.clones.transcript import recording_problems
        from voiceagent_tts.plugins.recordings.clone import clone_voice

        if text and not message.is_designed:
            problems += recording_problems(text, examined.samples, examined.speech_s)
        voice_file = clone_voice(Path(model), trimmed, text).to_bytes()
    return VoiceFile(voice_file, tuple(problems))


def _pocket_clone(models: str, samples: "torch.Tensor") -> bytes:
    from voiceagent_tts.plugins.pocket.load import load_model
    from voiceagent_tts.plugins.pocket.states import make_clone

    return make_clone([load_model(name) for name in models.split(",")], samples)


def _speech_of(recording: "npt.NDArray[np.float32]") -> list[tuple[int, int]] | None:
    """The speech in a recording; None if the package that detects speech is missing."""
    from voiceagent_tts.plugins.recordings.reference import find_speech

    try:
        return find_speech(recording)
    except ModuleNotFoundError:
        return None


def _check_pocket(models: str, voice_file: bytes) -> VoiceFile:
    from voiceagent_tts.plugins.pocket.load import load_model
    from voiceagent_tts.plugins.pocket.states import unpack_state

    for model in models.split(","):
        unpack_state(voice_file, load_model(model))
    return VoiceFile(voice_file)


def _check(model: str, voice_file: bytes) -> VoiceFile:
    from voiceagent_tts.model.config import read_model_config
    from voiceagent_tts.model.prompt import Cloned

    voice = Cloned.from_bytes(voice_file)
    config = read_model_config(Path(model))
    width = config.speaker_encoder_config.enc_dim
    if not voice.fits(width, config.talker_config):
        codes = "none" if voice.reference_codes is None else tuple(voice.reference_codes.shape)
        raise InvalidRequestError(
            f"expected a voice with an embedding of {width} numbers and codes of this model, got "
            f"{tuple(voice.speaker_embedding.shape)} and {codes}: it was cloned for another model",
            code=ErrorCode.INVALID_VOICE,
        )
    return VoiceFile(voice.to_bytes())


if __name__ == "__main__":
    raise SystemExit(main())
