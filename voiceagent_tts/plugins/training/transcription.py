"""Compares a transcript with what a speech recogniser hears: by an endpoint, and by word errors.

Any server with OpenAI's `POST /v1/audio/transcriptions` will do, such as speaches, vLLM or
whisper.cpp. Without one, the pace alone says whether a text can be that of its recording.
"""

import io
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import numpy as np
import numpy.typing as npt
import soundfile

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError

Samples = npt.NDArray[np.float32]

_TIMEOUT_S = 120.0
CHARS_PER_S = (2.0, 35.0)
"""Pace of speech in letters per second, from slow Chinese to very fast Spanish; a text outside
belongs to another recording."""


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


def letters(text: str) -> int:
    """Count the letters and digits of a text."""
    return sum(character.isalnum() for character in text)


def is_plausible_pace(text: str, duration_s: float) -> bool:
    """Return whether a recording of this length can contain the text."""
    slowest, fastest = CHARS_PER_S
    return slowest <= letters(text) / duration_s <= fastest


def word_error_rate(expected: str, heard: str) -> float:
    """Return edits per expected word; case, accents' encoding and punctuation do not count.

    Words of Han, Kana and Hangul are single characters, because their writers set no spaces.
    """
    wanted, got = _words(expected), _words(heard)
    return _edits(wanted, got) / max(1, len(wanted))


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    spaced = "".join(_spaced(character) for character in folded)
    return spaced.split()


def _spaced(character: str) -> str:
    if unicodedata.name(character, "").startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL")):
        return f" {character} "
    is_inside = character.isalnum() or unicodedata.combining(character)
    return character if is_inside else " "


def _edits(wanted: Sequence[str], got: Sequence[str]) -> int:
    """Return Levenshtein's distance of two lists of words."""
    row = list(range(len(got) + 1))
    for number, word in enumerate(wanted, start=1):
        diagonal, row[0] = row[0], number
        for place, other in enumerate(got, start=1):
            cost = min(row[place] + 1, row[place - 1] + 1, diagonal + (word != other))
            diagonal, row[place] = row[place], cost
    return row[-1]
