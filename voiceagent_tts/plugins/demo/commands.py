"""`voiceagent-tts demo`: a scripted conversation in which an agent is interrupted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voiceagent_tts.cli.arguments import Url
from voiceagent_tts.errors import InvalidRequestError

if TYPE_CHECKING:
    from voiceagent_tts.plugins.demo.demo_server import DemoVoice


def add_commands(root: typer.Typer) -> None:
    """Add `demo` to the command line."""
    root.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out"),
    engine: Annotated[
        str | None,
        typer.Option(
            help="Engine of the agent's voice: hibari, espeak or pocket. [default: hibari, if it "
            "is installed]"
        ),
    ] = None,
    url: Url = None,
) -> None:
    """Interrupt an agent twelve times, and compare its history with what was heard.

    Takes about 75 s. Needs no GPU, no download and no key. Exits with 1 if the history is wrong.
    The agent speaks English with a natural voice, and other languages with the embedded one; with
    --engine pocket, it answers in the languages of the models.
    """
    from voiceagent_tts.client.address import configured_key
    from voiceagent_tts.plugins.demo.demo_server import EMBEDDED
    from voiceagent_tts.plugins.demo.pipecat_log import quiet

    quiet("ERROR")
    from voiceagent_tts.plugins.demo.conversation import run_demo

    voice = _demo_voice(engine) if url is None else EMBEDDED
    raise typer.Exit(0 if run_demo(out, url, configured_key(None), voice) else 1)


def _demo_voice(engine: str | None) -> "DemoVoice":
    """Return the voice of an engine; download missing files of Pocket TTS.

    Args:
        engine: `hibari`, `espeak` or `pocket`; None for hibari where it is installed, else espeak.

    Raises:
        InvalidRequestError: the engine is another one.
        CheckpointError: Pocket TTS is not installed, or cannot be downloaded.
    """
    from voiceagent_tts.hibari.published import is_installed
    from voiceagent_tts.plugins.demo.demo_server import EMBEDDED, NATURAL, DemoVoice

    if engine is None:
        return NATURAL if is_installed() else EMBEDDED
    for voice in (NATURAL, EMBEDDED):
        if engine == voice.engine:
            return voice
    if engine != "pocket":
        raise InvalidRequestError(f"--engine: expected hibari, espeak or pocket; got {engine[:40]}")
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.plugins.pocket.files import fetch
    from voiceagent_tts.plugins.pocket.published import language_of, models_of

    models = models_of(read_settings({"engine": engine}))
    for model in models:
        fetch(model)
    languages = tuple(language_of(model) for model in models)
    return DemoVoice(engine, languages, max_onset_error_ms=None, user_voice=None)
