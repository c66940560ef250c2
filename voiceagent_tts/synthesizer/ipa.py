"""The warning of pronunciations in IPA that the voice's engine does not read."""

from voiceagent_tts.core import Segment, WarningCode
from voiceagent_tts.synthesizer.events import ContextWarned

_MESSAGE = (
    "this voice's engine reads no IPA, so a word of the lexicon or markup is said as it is "
    "written; add a respelling as `say`"
)


def ipa_warning(segment: Segment, text: str) -> ContextWarned | None:
    """Return the warning for a segment with IPA that has no respelling; None without.

    Args:
        segment: the segment, for an engine that reads no IPA.
        text: the context's text.
    """
    for reading in segment.readings:
        if reading.ipa and reading.said in text[reading.char_start : reading.char_end]:
            return ContextWarned(WarningCode.IPA_IGNORED, _MESSAGE)
    return None
