"""`voiceagent-tts bench quality`: whether the words are right."""

import os
from pathlib import Path
from typing import Annotated

import typer


def quality(
    transcriber: Annotated[
        str,
        typer.Option(
            help="What writes down the speech: http://HOST[{JSON}] with OpenAI's "
            "/v1/audio/transcriptions, faster-whisper:MODEL, or pocketsphinx (English, for trials)."
        ),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="[NAME=]ADDRESS[{JSON}], may be repeated, as for `bench latency`. "
            "[default: a temporary server]"
        ),
    ] = None,
    recordings: Annotated[
        Path | None,
        typer.Option(
            help="Measure the recordings in this folder instead: named as items of the set, or "
            "each with its text in NAME.txt."
        ),
    ] = None,
    texts: Annotated[
        str,
        typer.Option(
            help="`texts` (ten languages), `agent` (English, six kinds), or a file of lines."
        ),
    ] = "texts",
    languages: Annotated[str, typer.Option(help="Languages, as en,zh; a file has one.")] = "en",
    kinds: Annotated[
        str,
        typer.Option(
            help="Kinds of committed texts. [default: all, of `texts` short,menu,blurb,paragraph]"
        ),
    ] = "",
    voice: Annotated[
        str, typer.Option(help="Voices, as ryan,vivian; by default the target's.")
    ] = "",
    together: Annotated[int, typer.Option(min=1, help="Utterances at once.")] = 4,
    save: Annotated[Path | None, typer.Option(help="Keep the recordings in this folder.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the document to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report to this file.")] = None,
) -> None:
    """Measure whether the words are right, as a recogniser hears them.

    The key of the transcriber is in VOICEAGENT_TTS_JUDGE_KEY, that of the targets in
    VOICEAGENT_TTS_API_KEY.
    The last line of standard output is one JSON object.
    """
    from voiceagent_tts.client.address import configured_key
    from voiceagent_tts.plugins.bench.quality.run import run_quality
    from voiceagent_tts.plugins.bench.quality.test_sets import items_of
    from voiceagent_tts.plugins.bench.quality.transcribers import open_transcriber
    from voiceagent_tts.plugins.bench.run import Outputs
    from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
    from voiceagent_tts.plugins.bench.targets.target import Options

    key = os.environ.get("VOICEAGENT_TTS_JUDGE_KEY", "")
    spoken = names(languages)
    options = [Options(each, api_key=configured_key(None)) for each in names(voice) or [None]]
    addresses = [
        TargetAddress.parse(address, each).named_by_voice(len(options) > 1)
        for address in target or []
        for each in options
    ]
    run_quality(
        addresses,
        recordings,
        items_of(texts, spoken, names(kinds)),
        (transcriber.partition("{")[0], open_transcriber(transcriber, key)),
        Outputs(Path("out"), json, html, save=save),
        options[0],
        together=together,
        language=spoken[0] if spoken else "en",
    )


def names(text: str) -> list[str]:
    """The names in a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
