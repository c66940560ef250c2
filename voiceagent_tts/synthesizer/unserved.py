"""The warning of text in a language that the context's voice does not speak."""

from collections.abc import Sequence

from voiceagent_tts.core import WarningCode
from voiceagent_tts.synthesizer.events import ContextWarned
from voiceagent_tts.text.language import unserved_language


def language_warning(
    text: str, detected: str | None, languages: Sequence[str]
) -> ContextWarned | None:
    """Return the warning for a segment in another language; None without.

    Args:
        text: the segment, as the client wrote it.
        detected: code of the language that it is spoken in.
        languages: codes that the voice speaks.
    """
    spoken = {code.partition("-")[0] for code in languages}
    code = (detected or "").partition("-")[0]
    found = unserved_language(text) or (code if code and code not in spoken else None)
    if found is None:
        return None
    return ContextWarned(
        WarningCode.LANGUAGE_UNAVAILABLE,
        f"expected text in a language of this voice ({', '.join(languages)}), got text that seems "
        f"to be in {found}; it is read in another language; choose another voice or set `language`",
    )
