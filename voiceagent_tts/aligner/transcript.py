"""Checks whether a recording's transcript is plausible: its length, script and sounds.

`text.transcript` checks the text alone, `online.transcript_fit` compares it with the recording.
Doubtful sounds cause a warning, never a refusal: people with any accent must be able to clone their
voice.
"""

from contextlib import suppress

import numpy as np
import numpy.typing as npt

from voiceagent_tts.audio.pcm import float_to_pcm
from voiceagent_tts.errors import EngineError
from voiceagent_tts.text.language import detect_language, unserved_language
from voiceagent_tts.text.transcript import has_han, transcript_problems

_HAN_LANGUAGES = ("zh", "yue")
"""Languages in which Chinese characters are read. Kanji have too many readings to judge by."""


def recording_problems(text: str, samples: npt.NDArray[np.float32], speech_s: float) -> list[str]:
    """Return a sentence for each implausible property of a transcript.

    Args:
        text: the transcript.
        samples: [S] float32, the recording, mono, 24 kHz.
        speech_s: its length, without pauses as far as they are known.

    Raises:
        InvalidRequestError: it cannot be the transcript; `invalid_param`.
    """
    problems = transcript_problems(text, speech_s)
    with suppress(EngineError, ModuleNotFoundError):  # espeak-ng or an extra is not on this machine
        languages = _languages_of(text)
        if languages and not _is_likely(text, samples, languages):
            problems.append(
                "expected a transcript of what is said in the recording, got one whose sounds in "
                f"{languages[0]!r} fit as badly as those of any other text; correct it, or leave "
                "it out to clone the timbre alone: the voice may speak other words than its text"
            )
    return problems


def _languages_of(text: str) -> tuple[str, ...]:
    """Languages that the text may be in; empty where its sounds are not known."""
    if unserved_language(text) is not None:
        return ()
    language = detect_language(text, None)
    if not has_han(text):
        return (language,)
    return _HAN_LANGUAGES if language in _HAN_LANGUAGES else ()


def _is_likely(text: str, samples: npt.NDArray[np.float32], languages: tuple[str, ...]) -> bool:
    from voiceagent_tts.aligner.online.transcript_fit import transcript_fit

    pcm = float_to_pcm(samples)
    fits = [transcript_fit(pcm, text, language) for language in languages]
    return any(fit is None or fit.is_likely for fit in fits)
