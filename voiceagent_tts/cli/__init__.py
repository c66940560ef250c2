"""The command line: serve, say, batch, bench, detect, voices, models, keys and others.

Each command imports what it needs when it runs, so that `--help` is fast and a missing extra is
named instead of ending in a traceback.
"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from voiceagent_tts import __version__
from voiceagent_tts.cli import codec, keys, models, voices
from voiceagent_tts.cli.undeclared import KEPT, options_in
from voiceagent_tts.errors import InvalidRequestError, VoiceAgentError
from voiceagent_tts.extras import extras_with, install_hint
from voiceagent_tts.hooks import plugin_modules

app = typer.Typer(
    name="voiceagent-tts",
    help="Self-hosted, real-time text-to-speech for voice agents.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for name, commands in (
    ("voices", voices),
    ("models", models),
    ("codec", codec),
    ("keys", keys),
):
    app.add_typer(commands.app, name=name)
for plugin in plugin_modules("commands"):
    plugin.add_commands(app)

Url = Annotated[
    str | None,
    typer.Option(
        help="Running server (ws://HOST:PORT); its key is in VOICEAGENT_TTS_API_KEY. "
        "[default: a temporary server]"
    ),
]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. An error is one line on standard error and exit status 1.

    Args:
        arguments: what follows the name of the program; None reads `sys.argv`.
    """
    try:
        app(arguments)
    except VoiceAgentError as error:
        _stop(error.message)
    except OSError as error:  # such as a full disk or a file without read permission
        _stop(str(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("voiceagent_tts"):
            raise  # a bug of this package, not a missing one
        _stop(
            f"the package {error.name!r} is missing. Install the extras that this command needs: "
            f"{install_hint(*extras_with(error.name, _command(arguments)))}"
        )


def _command(arguments: list[str] | None) -> str:
    """The first word of the command line."""
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
    from voiceagent_tts.cli.demo_voice import demo_voice
    from voiceagent_tts.client.address import configured_key
    from voiceagent_tts.demo.pipecat_log import quiet
    from voiceagent_tts.demo.server import EMBEDDED

    quiet("ERROR")
    from voiceagent_tts.demo.conversation import run_demo

    voice = demo_voice(engine) if url is None else EMBEDDED
    raise typer.Exit(0 if run_demo(out, url, configured_key(None), voice) else 1)


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
    speed: Annotated[float, typer.Option(min=0.25, max=4.0, help="Speaking rate.")] = 1.0,
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
        bool | None,
        typer.Option(help="Play the audio. [default: yes, unless --output or --words]"),
    ] = None,
    url: Url = None,
) -> None:
    """Speak a text through the loudspeaker, into a file, or both."""
    from voiceagent_tts.cli.files import lexicon_entries
    from voiceagent_tts.cli.say import SayRequest, say_text
    from voiceagent_tts.client.address import configured_key
    from voiceagent_tts.protocol.messages import VoiceOptions

    options = VoiceOptions(
        voice=voice, language=language, speed=speed, instruct=instruct, seed=seed,
        lexicon=lexicon_entries(lexicon), markup=markup,
    )  # fmt: skip
    request = SayRequest(text, output, words, options, play, url, configured_key(None))
    asyncio.run(say_text(request))


@app.command()
def batch(
    folder: Annotated[Path, typer.Argument(help="Folder of texts: .txt and .md files in UTF-8.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the audio files.")],
    audio_format: Annotated[
        str, typer.Option("--format", help="Audio format: wav, flac, mp3 or ogg.")
    ] = "wav",
    words: Annotated[
        bool, typer.Option("--words", help="Also write word times, as .json.")
    ] = False,
    voice: Annotated[str | None, typer.Option(help="Voice name; `voices list` shows them.")] = None,
    language: Annotated[str | None, typer.Option(help="Language code. [default: detected]")] = None,
    instruct: Annotated[
        str | None, typer.Option(help="Speaking style, or a description of the voice.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.25, max=4.0, help="Speaking rate.")] = 1.0,
    lexicon: Annotated[Path | None, typer.Option(help="TOML file of pronunciations.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Texts spoken in parallel.")] = 4,
    force: Annotated[bool, typer.Option("--force", help="Speak finished texts again.")] = False,
    url: Url = None,
) -> None:
    """Speak every text of a folder into audio files. Exits with 1 if a text was skipped."""
    from voiceagent_tts.cli.batch import BatchRequest, audio_format_of, speak_folder
    from voiceagent_tts.cli.files import lexicon_entries
    from voiceagent_tts.client.address import configured_key

    request = BatchRequest(
        folder, output, audio_format_of(audio_format), words, voice, language, instruct, speed,
        lexicon_entries(lexicon), jobs, force, url,
        configured_key(None),
    )  # fmt: skip
    raise typer.Exit(0 if asyncio.run(speak_folder(request)) else 1)


@app.command()
def verify(
    model: Annotated[
        str | None, typer.Option(help="Qwen3-TTS model to check: folder or id.")
    ] = None,
    aligner: Annotated[
        str | None, typer.Option(help="Qwen3-ForcedAligner to check: folder or id.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16 or float16; on a CPU also int8, int4 or auto."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Recording of 3 to 30 s that a Base model clones.")
    ] = None,
    text: Annotated[
        str, typer.Option(callback=voices.valid_unicode, help="Transcript of the reference.")
    ] = "",
) -> None:
    """Check that a model or an aligner works correctly on this machine. Exits with 1 if not."""
    from voiceagent_tts.cli.verify import verify_aligner, verify_model

    if model is not None and aligner is None:
        holds = verify_model(model, None, precision, reference, text)
    elif aligner is not None and model is None:
        holds = verify_aligner(aligner, None, precision)
    else:
        raise InvalidRequestError("expected exactly one of --model and --aligner")
    raise typer.Exit(0 if holds else 1)


@app.command()
def doctor(
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Test the GPU instead, with the settings' model, if any."),
    ] = False,
    production: Annotated[
        bool,
        typer.Option("--production", help="Judge whether the settings are safe for strangers."),
    ] = False,
) -> None:
    """Report what works on this machine. Exits with 1 if a server could not speak.

    With --production, exits with 1 if callers who do not trust each other could harm each other.
    """
    if production:
        from voiceagent_tts.cli.production import examine_production

        raise typer.Exit(0 if asyncio.run(examine_production()) else 1)
    if gpu:
        from voiceagent_tts.cli.gpu import examine_gpu
        from voiceagent_tts.cli.settings import read_settings

        settings = read_settings({})
        model = settings.models[0] if settings.engine == "qwen3" else None
        raise typer.Exit(0 if examine_gpu(model) else 1)
    from voiceagent_tts.cli.doctor import examine

    raise typer.Exit(0 if asyncio.run(examine()) else 1)


def _stop(message: str) -> NoReturn:
    typer.echo(f"voiceagent-tts: {message}", err=True)
    sys.exit(1)
