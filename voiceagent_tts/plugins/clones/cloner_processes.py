"""Runs cloner processes, which turn recordings into voice files, one after the other.

Knows no requests, and nothing of a voice file's contents.
"""

import asyncio
import os
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceagent_tts.errors import EngineError, InvalidRequestError
from voiceagent_tts.plugins.clones.messages import (
    CheckVoiceFile,
    CloneRecording,
    CloneRefused,
    VoiceFile,
    decode,
    encode,
)

_TIMEOUT_S = 180.0
"""Reading the encoders from a slow disk takes most of it."""

_ENVIRONMENT = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
"""Contexts are spoken meanwhile, and need their cores."""


@dataclass(frozen=True, slots=True)
class CloneModel:
    """What speaks the clones of a server.

    Attributes:
        model: folder of a Qwen3-TTS Base model; for Pocket TTS, its models, separated by commas.
    """

    engine: str
    model: str


class ClonerProcesses:
    """Clones voices in processes of their own; requests wait for each other."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def clone(
        self,
        model: CloneModel,
        samples: npt.NDArray[np.float32],
        text: str,
        *,
        is_designed: bool = False,
    ) -> VoiceFile:
        """Clone the voice of a recording.

        Args:
            model: what will speak the voice.
            samples: [S] float32 in [-1, 1], mono, 24 kHz.
            text: transcript of the recording; empty to clone the timbre alone.
            is_designed: as in `CloneRecording`.

        Raises:
            InvalidRequestError: the recording cannot become a voice.
            EngineError: the cloner failed, or took too long.
        """
        message = CloneRecording(samples.astype("<f4").tobytes(), text, is_designed)
        return await self._run(model, message)

    async def check(self, model: CloneModel, voice_file: bytes) -> VoiceFile:
        """Check that a file is a voice of a model.

        Raises:
            InvalidRequestError: it is not.
            EngineError: the cloner failed, or took too long.
        """
        return await self._run(model, CheckVoiceFile(voice_file))

    async def _run(self, model: CloneModel, message: CloneRecording | CheckVoiceFile) -> VoiceFile:
        async with self._turn:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "voiceagent_tts.plugins.clones.cloner",
                model.engine,
                model.model,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **_ENVIRONMENT},
            )
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    answer, _ = await process.communicate(encode(message))
            except TimeoutError:
                raise EngineError(f"cloning took longer than {_TIMEOUT_S:g} s") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if process.returncode != 0:
            raise EngineError("the cloner failed; the server's log says why")
        match decode(answer):
            case VoiceFile() as voice_file:
                return voice_file
            case CloneRefused(code, text):
                raise InvalidRequestError(text, code=code)
            case other:
                raise EngineError(f"the cloner answered with {type(other).__name__}")
