"""Warns of text in a language that a voice does not speak."""

from collections.abc import Sequence

from voiceagent_tts.core import WarningCode
from voiceagent_tts.synthesizer.events import ContextWarned
from voiceagent_tts.synthesizer.segments import Intake
from voiceagent_tts.text.language import LATIN, NAMES, detect_language
from voiceagent_tts.text.unserved import unserved_language


class LanguageCheck:
    """Notices text in a language that a voice does not speak, once in a context.

    Args:
        given: code of the language that the client named; text in Latin letters is then taken to be
            in it, as quotes and names in any language may be.
    """

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._char_end = 0  # of the text that was checked
        self._has_warned = False

    def warning(
        self, intake: Intake, char_end: int, languages: Sequence[str], least_chars: int
    ) -> ContextWarned | None:
        """Check the new text before `char_end`, if it has `least_chars`; None without a warning."""
        if self._has_warned or char_end - self._char_end < least_chars:
            return None
        new = intake.text_between(self._char_end, char_end)
        self._char_end = char_end
        found = unserved_language(new) or _served_language(new, self._given, languages)
        if found is None:
            return None
        self._has_warned = True
        return ContextWarned(
            WarningCode.LANGUAGE_UNAVAILABLE,
            f"expected text in a language of this context ({self._given or ', '.join(languages)}), "
            f"got text that seems to be in {found}; choose another voice, or set `language`",
        )


def _served_language(text: str, given: str | None, languages: Sequence[str]) -> str | None:
    """Name of the language of a text that other voices speak; None if this one may."""
    code = detect_language(text, given or languages[0]).partition("-")[0]
    spoken = {each.partition("-")[0] for each in ((given,) if given else languages)}
    if code in spoken or (given and code in LATIN):
        return None
    return NAMES[code][0].capitalize()
