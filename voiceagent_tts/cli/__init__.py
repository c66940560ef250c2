"""The command line: serve, say, voices, models, and the commands of plugins.

Each command imports what it needs when it runs, so that `--help` is fast and a missing extra is
named instead of ending in a traceback. `main` prints the errors of all commands.
"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from voiceagent_tts import __version__
from voiceagent_tts.cli import models, voices
from voiceagent_tts.cli.arguments import Speed, Url
from voiceagent_tts.cli.missing_packages import extras_with
from voiceagent_tts.cli.streams import secure_standard_streams
from voiceagent_tts.cli.undeclared import KEPT, options_in
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.extras import install_hint
from voiceagent_tts.hooks import plugin_modules

app = typer.Typer(
    name="voiceagent-tts",
    help="Self-hosted, real-time text-to-speech for voice agents.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for name, commands in (("voices", voices), ("models", models)):
    app.add_typer(commands.app, name=name)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. An error is one line on standard error and exit status 1.

    The arguments are what follows the name of the program; None reads `sys.argv`.
    """
    secure_standard_streams()
    try:
        app(arguments)
    except Exception as error:
        _stop(_sentence(error, _command(arguments)))


def _sentence(error: Exception, command: str) -> str:
    """Return the line for an error of a command; a bug of this package is raised again."""
    match error:
        case VoiceAgentError():
            return error.message
        case OSError():  # such as a full disk or a file without read permission
            return str(error) or f"{type(error).__name__}: nothing was answered in time"
        case ModuleNotFoundError(name=str(name)) if not name.startswith("voiceagent_tts"):
            extras = install_hint(*extras_with(name, command))
            return (
                f"the package {name!r} is missing. Install the extras that this command needs: "
                f"{extras}"
            )
        case ExceptionGroup(exceptions=[Exception() as first, *_]):  # of tasks that ran together
            return _sentence(first, command)
        case _:
            raise error


def _command(arguments: list[str] | None) -> str:
    given = sys.argv[1:] if arguments is None else arguments
    return given[0] if given else ""


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"voiceagent-tts {__version__}")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Self-hosted, real-time text-to-speech for voice agents."""


@app.command(context_settings=KEPT)
def serve(
    context: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Qwen3-TTS model: folder or id. May be repeated. Implies --engine qwen3. With "
            "--engine pocket: its model for a language, such as english or french_24l. With "
            "--engine hibari: a voice, such as emma. With --engine kokoro: the folder of its files."
        ),
    ] = None,
    download: Annotated[
        bool,
        typer.Option(
            "--download",
            help="Without --engine: download Kokoro or else Pocket TTS, if its extra is installed.",
        ),
    ] = False,
) -> None:
    """Run the server. Ctrl-C or SIGTERM stops it after open contexts have finished.

    Every setting of docs/settings.md is an option, too, such as --engine espeak, --port 8080,
    --log-json and --no-watermark.
    """
    from voiceagent_tts.cli.serve import run_server
    from voiceagent_tts.config import Settings

    types = {name: field.annotation for name, field in Settings.model_fields.items()}
    given: dict[str, Any] = {"models": model or None} | options_in(context, types)
    if given["models"] is not None:
        given.setdefault("engine", "qwen3")
    elif "upstream" in given and "overflow" not in given:
        given.setdefault("engine", "openai")
    run_server(
        {name: value for name, value in given.items() if value is not None}, may_download=download
    )


@app.command()
def say(
    text: Annotated[
        str | None, typer.Argument(help="Text to speak. [default: standard input, as it arrives]")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Audio file to write: .wav, .flac, .ogg, .mp3 or .opus; - for a WAV file on "
            "standard output.",
        ),
    ] = None,
    words: Annotated[
        Path | None, typer.Option(help="File for word times: .json, .srt or .vtt.")
    ] = None,
    voice: Annotated[str | None, typer.Option(help="Voice name; `voices list` shows them.")] = None,
    language: Annotated[str | None, typer.Option(help="Language code. [default: detected]")] = None,
    speed: Speed = 1.0,
    instruct: Annotated[
        str | None, typer.Option(help="Speaking style, or a description of the voice.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the random numbers. [default: random]")
    ] = None,
    lexicon: Annotated[Path | None, typer.Option(help="TOML file of pronunciations.")] = None,
    markup: Annotated[
        bool, typer.Option("--markup", help='Obey tags in the text: <break time="300ms"/>.')
    ] = False,
    play: Annotated[
        bool | None, typer.Option(help="Play the audio. [default: yes, unless --output or --words]")
    ] = None,
    url: Url = None,
) -> None:
    """Speak a text through the loudspeaker, into a file, or both."""
    from voiceagent_tts.cli.files import lexicon_entries
    from voiceagent_tts.cli.say import SayRequest, say_text
    from voiceagent_tts.client.address import configured_key
    from voiceagent_tts.protocol.client_connection import VoiceOptions

    options = VoiceOptions(
        voice=voice, language=language, speed=speed, instruct=instruct, seed=seed,
        lexicon=lexicon_entries(lexicon), markup=markup,
    )  # fmt: skip
    request = SayRequest(text, output, words, options, play, url, configured_key(None))
    asyncio.run(say_text(request))


def _stop(message: str) -> NoReturn:
    typer.echo(f"voiceagent-tts: {message}", err=True)
    sys.exit(1)


for plugin in plugin_modules("commands"):  # last, so that `--help` begins with the core's
    plugin.add_commands(app)
