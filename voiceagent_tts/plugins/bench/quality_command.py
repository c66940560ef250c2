"""`voiceagent-tts bench quality`: whether the words, the voice and the sound are right."""

from pathlib import Path
from typing import Annotated

import typer

from voiceagent_tts.errors import InvalidRequestError


def quality(
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
    parts: Annotated[
        str,
        typer.Option(
            help="Parts to run: words, pronunciation, artifacts, continuity, voice. "
            "[default: all that the other options allow]"
        ),
    ] = "",
    texts: Annotated[
        str,
        typer.Option(
            help="`texts` (ten languages), `agent` (English, six kinds), a Seed-TTS meta.lst, or a "
            "file of lines."
        ),
    ] = "texts",
    languages: Annotated[str, typer.Option(help="Languages, as en,zh; a file has one.")] = "en",
    kinds: Annotated[
        str,
        typer.Option(
            help="Kinds of committed texts. [default: all, of `texts` short,menu,blurb,paragraph]"
        ),
    ] = "",
    transcriber: Annotated[
        str | None,
        typer.Option(
            help="http://HOST[{JSON}] with OpenAI's /v1/audio/transcriptions, "
            "faster-whisper:MODEL, or pocketsphinx (English, for trials)."
        ),
    ] = None,
    speaker_model: Annotated[
        Path | None, typer.Option(help="Folder of a Qwen3-TTS Base model: its speaker encoder.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Recording of the voice, for texts without one.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Short inputs of each language.")] = 200,
    voice: Annotated[
        str, typer.Option(help="Voices, as ryan,vivian; by default the target's.")
    ] = "",
    together: Annotated[int, typer.Option(min=1, help="Utterances at once.")] = 4,
    save: Annotated[Path | None, typer.Option(help="Keep the recordings in this folder.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the document to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report to this file.")] = None,
) -> None:
    """Measure whether the words, the voice and the sound are right.

    The key of the transcriber is in VOICEAGENT_TTS_JUDGE_KEY, that of the targets in
    VOICEAGENT_TTS_API_KEY.
    The last line of standard output is one JSON object.
    """
    from voiceagent_tts.client.address import configured_key
    from voiceagent_tts.config import key_for
    from voiceagent_tts.plugins.bench.quality.run import PARTS, Plan, Tools, run_quality
    from voiceagent_tts.plugins.bench.quality.test_sets import (
        items_of,
        pronunciations,
        short_inputs,
    )
    from voiceagent_tts.plugins.bench.quality.transcribers import open_transcriber
    from voiceagent_tts.plugins.bench.quality.voices import open_encoder
    from voiceagent_tts.plugins.bench.run import Outputs
    from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
    from voiceagent_tts.plugins.bench.targets.target import Options

    key = key_for("JUDGE_KEY")
    chosen, spoken = names(parts) or list(PARTS), names(languages)
    if unknown := set(chosen) - set(PARTS):
        raise InvalidRequestError(
            f"--parts: expected some of {', '.join(PARTS)}; got {', '.join(sorted(unknown))}"
        )
    language = spoken[0] if spoken else "en"
    options = [Options(each, api_key=configured_key(None)) for each in names(voice) or [None]]
    tools = Tools(
        transcribe=open_transcriber(transcriber, key) if transcriber else None,
        embed=open_encoder(speaker_model) if speaker_model else None,
        reference=reference,
        names=_judges(words=transcriber, voice=speaker_model),
    )
    plan = Plan(
        chosen,
        items_of(texts, spoken, names(kinds)),
        pronunciations(spoken),
        short_inputs(spoken, seeds),
        together,
        language,
    )
    addresses = [
        TargetAddress.parse(address, each).named_by_voice(len(options) > 1)
        for address in target or []
        for each in options
    ]
    outputs = Outputs(Path("out"), json, html, save=save)
    run_quality(addresses, recordings, plan, tools, outputs, options[0])


def names(text: str) -> list[str]:
    """The names in a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _judges(**addresses: object) -> dict[str, str]:
    """What judges each part, without its arguments."""
    return {part: str(address).partition("{")[0] for part, address in addresses.items() if address}
