"""Warnings of text that a voice cannot speak as it is meant: another language, or IPA."""

from collections.abc import Sequence

from voiceagent_tts.core import Segment, WarningCode
from voiceagent_tts.synthesizer.events import ContextWarned
from voiceagent_tts.text.language import LATIN, NAMES, detect_language, unserved_language

_IPA_MESSAGE = (
    "this voice's engine reads no IPA, so a word of the lexicon or markup is said as it is "
    "written; add a respelling as `say`"
)


def language_warning(
    text: str, given: str | None, languages: Sequence[str]
) -> ContextWarned | None:
    """Return the warning for text in another language; None without.

    Args:
        text: a part of the context's text, as the client wrote it.
        given: code of the language that the client named; text in Latin letters is then taken to be
            in it, as quotes and names in any language may be.
        languages: codes that the voice speaks.
    """
    found = unserved_language(text) or _served_language(text, given, languages)
    if found is None:
        return None
    return ContextWarned(
        WarningCode.LANGUAGE_UNAVAILABLE,
        f"expected text in a language of this context ({given or ', '.join(languages)}), got text "
        f"that seems to be in {found}; choose another voice, or set `language`",
    )


def _served_language(text: str, given: str | None, languages: Sequence[str]) -> str | None:
    """Name of the language of a text that other voices speak; None if this one may."""
    code = detect_language(text, given or languages[0]).partition("-")[0]
    spoken = {each.partition("-")[0] for each in ((given,) if given else languages)}
    if code in spoken or (given and code in LATIN):
        return None
    return NAMES[code][0].capitalize()


def ipa_warning(segment: Segment, text: str) -> ContextWarned | None:
    """Return the warning for a segment with IPA that has no respelling; None without.

    Args:
        segment: the segment, for an engine that reads no IPA.
        text: the context's text.
    """
    for reading in segment.readings:
        if reading.ipa and reading.said in text[reading.char_start : reading.char_end]:
            return ContextWarned(WarningCode.IPA_IGNORED, _IPA_MESSAGE)
    return None
