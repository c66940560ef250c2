"""Settings of the Pipecat service that may change while the pipeline runs."""

from dataclasses import dataclass, field

from pipecat.services.settings import TTSSettings
from pipecat.utils.types import NOT_GIVEN, NotGiven

from voiceagent_tts.protocol.messages import OpenOptions


@dataclass
class VoiceAgentTTSSettings(TTSSettings):
    """Voice settings, which `TTSUpdateSettingsFrame(delta=...)` changes between two pieces of text.

    `voice` and `language` are inherited; without a language the server detects it per segment.

    Parameters:
        speed: 0.5 to 2.0 times the normal speed, pitch unchanged, for voices that support it.
        instruct: description of how to speak, for voices that support one.
        seed: makes the audio repeatable for one voice and text, as far as the engine can.
    """

    speed: float | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    instruct: str | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    seed: int | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)


def check_extra(settings: TTSSettings) -> None:
    """Check that `settings.extra` has only options of a server context.

    Raises:
        ValueError: an option is unknown.
    """
    known = OpenOptions.__annotations__.keys()
    unknown = settings.extra.keys() - known
    if unknown:
        expected, got = ", ".join(sorted(known)), ", ".join(sorted(unknown))
        raise ValueError(f"settings.extra: expected options of a context ({expected}); got {got}")
