"""Whether a text can be what was said in a recording, by its pace and its script.

A clone learns from its transcript how letters sound in the voice. A wrong one gives a voice that
speaks other words than its text. This module knows no audio; `aligner.transcript` compares the
sounds, too.
"""

import unicodedata

from voiceagent_tts.errors import ErrorCode, InvalidRequestError

_SYLLABLES_PER_LETTER = {"CJK": 1.0, "HIRAGANA": 1.0, "KATAKANA": 1.0, "HANGUL": 1.0}
_ALPHABETS = ("LATIN", "CYRILLIC")
_LETTERS_PER_SYLLABLE = 2.7
"""Of English, German and Spanish; a digit is about a syllable, too."""
_LIKELY_RATE = (2.0, 8.0)
"""Syllables per second of speech without pauses. Slow readers have 3, fast speakers 7."""
_POSSIBLE_RATE = (1.0, 14.0)
_MAX_FOREIGN_SHARE = 0.3


def transcript_problems(text: str, speech_s: float) -> list[str]:
    """Return a sentence for what is unlikely about the transcript of a recording.

    Args:
        text: the transcript.
        speech_s: length of the recording, without pauses as far as they are known.

    Raises:
        InvalidRequestError: it cannot be the transcript; `invalid_param`.
    """
    _check_script(text)
    rate = syllables(text) / max(speech_s, 0.1)
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


def has_han(text: str) -> bool:
    """Whether some of the text is in Chinese characters."""
    return any(_script(each) == "CJK" for each in text if each.isalpha())


def syllables(text: str) -> float:
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
