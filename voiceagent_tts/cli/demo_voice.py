"""The agent's voice in the demo."""

from voiceagent_tts.demo.server import EMBEDDED, NATURAL, DemoVoice
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.hibari.published import is_installed


def demo_voice(engine: str | None) -> DemoVoice:
    """Return the voice of an engine; download missing files of Pocket TTS.

    Args:
        engine: `hibari`, `espeak` or `pocket`; None for hibari where it is installed, else espeak.

    Raises:
        InvalidRequestError: the engine is another one.
        CheckpointError: Pocket TTS is not installed, or cannot be downloaded.
    """
    if engine is None:
        return NATURAL if is_installed() else EMBEDDED
    for voice in (NATURAL, EMBEDDED):
        if engine == voice.engine:
            return voice
    if engine != "pocket":
        raise InvalidRequestError(f"--engine: expected hibari, espeak or pocket; got {engine[:40]}")
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.pocket.files import fetch
    from voiceagent_tts.pocket.published import language_of

    models = read_settings({"engine": engine}).pocket_models
    for model in models:
        fetch(model)
    languages = tuple(language_of(model) for model in models)
    return DemoVoice(engine, languages, max_onset_error_ms=None, user_voice=None)
