"""The agent's voice in the demo."""

from voiceagent_tts.demo.server import EMBEDDED, DemoVoice
from voiceagent_tts.errors import InvalidRequestError


def demo_voice(engine: str) -> DemoVoice:
    """Return the voice of `espeak` or `pocket`; download missing files of Pocket TTS.

    Raises:
        InvalidRequestError: the engine is another one.
        CheckpointError: Pocket TTS is not installed, or cannot be downloaded.
    """
    if engine == EMBEDDED.engine:
        return EMBEDDED
    if engine != "pocket":
        raise InvalidRequestError(f"--engine: expected espeak or pocket; got {engine[:40]}")
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.pocket.files import fetch
    from voiceagent_tts.pocket.published import language_of

    models = read_settings({"engine": engine}).pocket_models
    for model in models:
        fetch(model)
    return DemoVoice(engine, tuple(language_of(model) for model in models), has_native_words=False)
