"""What a speech recogniser hears: asks an endpoint.

Any server with OpenAI's `POST /v1/audio/transcriptions` will do, such as speaches, vLLM or
whisper.cpp.
"""

import io
from dataclasses import dataclass

import httpx
import numpy as np
import numpy.typing as npt
import soundfile

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError

Samples = npt.NDArray[np.float32]

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Recogniser:
    """A Whisper-compatible endpoint.

    Attributes:
        url: address of the server, up to and without `/v1`.
        model: model that the server is asked for.
        key: API key, or "" for a server without keys.
    """

    url: str
    model: str = "whisper-1"
    key: str = ""

    def transcribe(self, samples: Samples, language: str | None) -> str:
        """Return what the recogniser hears.

        Args:
            samples: [S] float32, mono, 24 kHz.
            language: code of the language, or None.

        Raises:
            EngineError: the server is not reachable, or did not answer with a transcript.
        """
        fields = {"model": self.model, "response_format": "json"}
        if language is not None:
            fields["language"] = language
        file = io.BytesIO()
        soundfile.write(file, samples, SAMPLE_RATE_HZ, format="WAV", subtype="PCM_16")
        try:
            answer = httpx.post(
                f"{self.url.rstrip('/')}/v1/audio/transcriptions",
                data=fields,
                files={"file": ("clip.wav", file.getvalue(), "audio/wav")},
                headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
                timeout=_TIMEOUT_S,
            )
            answer.raise_for_status()
            return str(answer.json()["text"])
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{self.url}: expected a transcript from /v1/audio/transcriptions; "
                f"got {type(error).__name__}; check the address, the model and the key"
            ) from error
