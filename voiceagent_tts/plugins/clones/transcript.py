"""Checks whether a recording's transcript is plausible: its length, script and sounds.

The text alone is checked first; then `transcript_fit` compares it with the recording. Doubtful
sounds cause a warning, never a refusal: people with any accent must be able to clone their voice.
"""

import unicodedata

import numpy as np
import numpy.typing as npt

from voiceagent_tts.audio.pcm import float_to_pcm
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError
from voiceagent_tts.text.language import detect_language
from voiceagent_tts.text.unserved import unserved_language

_SYLLABLES_PER_LETTER = {"CJK": 1.0, "HIRAGANA": 1.0, "KATAKANA": 1.0, "HANGUL": 1.0}
_ALPHABETS = ("LATIN", "CYRILLIC")
_LETTERS_PER_SYLLABLE = 2.7
"""Of English, German and Spanish; a digit is about a syllable, too."""
_LIKELY_RATE = (2.0, 8.0)
"""Syllables per second of speech without pauses. Slow readers have 3, fast speakers 7."""
_POSSIBLE_RATE = (1.0, 14.0)
_MAX_FOREIGN_SHARE = 0.3
_HAN_LANGUAGES = ("zh", "yue")
"""Languages in which Chinese characters are read. Kanji have too many readings to judge by."""


def transcript_problems(text: str, speech_s: float) -> list[str]:
    """Return a sentence for what is unlikely about the transcript of a recording.

    Raises:
        InvalidRequestError: it cannot be the transcript; `invalid_param`.
    """
    _check_script(text)
    rate = _syllables(text) / max(speech_s, 0.1)
    sentence = (
        f"expected a transcript of all that is said in the recording, got {len(text)} characters "
        f"for {speech_s:.1f} s of speech"
    )
    if not _POSSIBLE_RATE[0] <= rate <= _POSSIBLE_RATE[1]:
        raise InvalidRequestError(
            f"{sentence}; correct it, or leave it out to clone the timbre alone",
            code=ErrorCode.INVALID_PARAM,
        )
    if _LIKELY_RATE[0] <= rate <= _LIKELY_RATE[1]:
        return []
    return [f"{sentence}; the voice may speak other words than its text"]


def _has_han(text: str) -> bool:
    """Whether some of the text is in Chinese characters."""
    return any(_script(each) == "CJK" for each in text if each.isalpha())


def _syllables(text: str) -> float:
    """Estimate of the number of syllables of a text."""
    return sum(
        _SYLLABLES_PER_LETTER.get(_script(each), 1 / _LETTERS_PER_SYLLABLE)
        if each.isalpha()
        else float(each.isdigit())
        for each in text
    )


def _check_script(text: str) -> None:
    letters = [each for each in text if each.isalpha()]
    foreign = [
        each for each in letters if _script(each) not in (*_ALPHABETS, *_SYLLABLES_PER_LETTER)
    ]
    if len(foreign) > _MAX_FOREIGN_SHARE * len(letters):
        raise InvalidRequestError(
            "expected a transcript in a language of the model, got letters of the script "
            f"{_script(foreign[0]).capitalize()}; leave it out to clone the timbre alone",
            code=ErrorCode.INVALID_LANGUAGE,
        )


def _script(letter: str) -> str:
    return unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "?").partition(" ")[0]


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
    try:
        languages = _languages_of(text)
        if languages and not _is_likely(text, samples, languages):
            problems.append(
                "expected a transcript of what is said in the recording, got one whose sounds in "
                f"{languages[0]!r} fit as badly as those of any other text; correct it, or leave "
                "it out to clone the timbre alone: the voice may speak other words than its text"
            )
    except EngineError:
        pass  # espeak-ng is not on this machine
    except ModuleNotFoundError as error:  # nor is an extra
        if (error.name or "").startswith("voiceagent_tts"):
            raise
    return problems


def _languages_of(text: str) -> tuple[str, ...]:
    """Languages that the text may be in; empty where its sounds are not known."""
    if unserved_language(text) is not None:
        return ()
    language = detect_language(text, None)
    if not _has_han(text):
        return (language,)
    return _HAN_LANGUAGES if language in _HAN_LANGUAGES else ()


def _is_likely(text: str, samples: npt.NDArray[np.float32], languages: tuple[str, ...]) -> bool:
    from voiceagent_tts.plugins.clones.transcript_fit import transcript_fit

    pcm = float_to_pcm(samples)
    fits = [transcript_fit(pcm, text, language) for language in languages]
    return any(fit is None or fit.is_likely for fit in fits)
