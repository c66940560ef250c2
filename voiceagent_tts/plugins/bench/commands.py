"""`voiceagent-tts bench`: how soon, how steadily and how truthfully a server speaks."""

import os
from pathlib import Path
from typing import Annotated

import typer

from voiceagent_tts.cli.arguments import finite
from voiceagent_tts.errors import EngineError, InvalidRequestError

app = typer.Typer(
    help="Measure speech servers, this one and others, at the client.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SEED = 1
"""Seed of the texts, arrivals, voices and moments of cuts, so that two runs have the same ones."""
OUT = Path("out")
"""Folder for the logs of started servers."""


def add_commands(root: typer.Typer) -> None:
    """Add `bench` to the command line."""
    root.add_typer(app, name="bench")


@app.command()
def latency(
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="[NAME=]ADDRESS[{JSON}], may be repeated: ws://HOST (this project's), http://HOST "
            "(OpenAI-compatible), pocket-tts+http://HOST (its own server), "
            "cartesia+ws://HOST/tts/websocket, pipecat:MODULE.CLASS, livekit:MODULE.CLASS. "
            "[default: a temporary server]"
        ),
    ] = None,
    together: Annotated[
        str, typer.Option(help="Closed loops: utterances at once, one section each, as 1,8.")
    ] = "1",
    rate: Annotated[
        str, typer.Option(help="Open loops: Poisson arrivals per second, as 1,4.")
    ] = "",
    talking: Annotated[
        str, typer.Option(help="Conversations: callers who listen and think, as 4,16.")
    ] = "",
    think_s: Annotated[
        float, typer.Option(min=0, callback=finite, help="Their mean pause in seconds.")
    ] = 1.5,
    seconds: Annotated[
        float, typer.Option(min=0.1, callback=finite, help="Duration of each section.")
    ] = 20.0,
    warm_up_s: Annotated[
        float, typer.Option(min=0, callback=finite, help="Seconds before it, not measured.")
    ] = 2.0,
    tokens: Annotated[
        bool,
        typer.Option("--tokens", help="Text arrives as LLMs write it: 30 to 80 tokens a second."),
    ] = False,
    barge_ins: Annotated[
        float, typer.Option(min=0, max=1, callback=finite, help="Share of interrupted utterances.")
    ] = 0.0,
    new_sockets: Annotated[
        bool, typer.Option("--new-sockets", help="Connect for every utterance.")
    ] = False,
    languages: Annotated[str, typer.Option(help="Languages of the texts, as en,zh.")] = "en",
    kinds: Annotated[
        str,
        typer.Option(
            help="Kinds of texts: short, menu, blurb, paragraph, code-mixed, numbers. "
            "[default: all]"
        ),
    ] = "",
    texts: Annotated[
        Path | None, typer.Option(help="Speak the lines of this file instead.")
    ] = None,
    voice: Annotated[str | None, typer.Option(help="Voice; by default the target's.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the document to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report to this file.")] = None,
) -> None:
    """Measure how soon and how steadily targets speak, under load.

    The last line of standard output is one JSON object.
    """
    from voiceagent_tts.client.address import configured_key
    from voiceagent_tts.plugins.bench.callers import Section
    from voiceagent_tts.plugins.bench.figures import mute_targets
    from voiceagent_tts.plugins.bench.loads import Load, Style
    from voiceagent_tts.plugins.bench.run import Outputs, run_latency, targets_or_own
    from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
    from voiceagent_tts.plugins.bench.targets.target import Options
    from voiceagent_tts.plugins.bench.texts import choose_texts, texts_in

    loads = [Load(together=count) for count in _counts("together", together)]
    loads += [Load(per_s=per_s) for per_s in _numbers("rate", rate)]
    loads += [Load(together=count, think_s=think_s) for count in _counts("talking", talking)]
    if not loads:
        raise InvalidRequestError("expected --together, --rate or --talking; got none")
    options = Options(voice, api_key=configured_key(None))
    language_names = _names(languages)
    chosen = (
        choose_texts(language_names, _names(kinds))
        if texts is None
        else texts_in(texts, (language_names or ["en"])[0])
    )
    addresses = [TargetAddress.parse(text, options) for text in target or []]
    document = run_latency(
        targets_or_own(addresses, OUT, options),
        [Section(load, seconds, warm_up_s, new_sockets) for load in loads],
        Style(chosen, tokens, barge_ins, SEED),
        Outputs(OUT, json, html),
    )
    if mute := mute_targets(document["sections"]):
        raise EngineError(
            f"expected speech, got none from {', '.join(mute)}; try what the lines above name"
        )


@app.command()
def bargein(
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="[NAME=]pipecat:MODULE.CLASS{JSON} or livekit:MODULE.CLASS{JSON}, repeatable; "
            "{language} in the arguments is the language of a session. "
            "[default: ours on both hosts, own server]"
        ),
    ] = None,
    conditions: Annotated[
        str,
        typer.Option(
            help="What happens to the replies: steady, stalls (of the LLM), breaks (of the "
            "connection), as steady,stalls."
        ),
    ] = "steady",
    cuts: Annotated[int, typer.Option(min=1, help="Interruptions of each target.")] = 40,
    together: Annotated[int, typer.Option(min=1, max=64, help="Sessions at once.")] = 5,
    languages: Annotated[
        str, typer.Option(help="Languages of the replies: en, de, fr, es, it, zh, ja.")
    ] = "en,de,fr,es,it",
    judge: Annotated[
        str | None,
        typer.Option(
            help="Also compare the history with what a recogniser hears in the sound until the "
            "cut: whisper (faster-whisper:tiny.en), faster-whisper:MODEL, pocketsphinx or "
            "http(s)://HOST[{JSON}]."
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the document to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report to this file.")] = None,
) -> None:
    """Interrupt agents, and compare their history with what was heard, judged from the sound.

    In real time, in real sessions of Pipecat or LiveKit.
    The last line of standard output is one JSON object.
    """
    from voiceagent_tts.plugins.bench.bargein.conditions import Condition, conditions_of
    from voiceagent_tts.plugins.bench.bargein.run import run_bargein
    from voiceagent_tts.plugins.bench.bargein.services import targets_or_ours
    from voiceagent_tts.plugins.bench.run import Outputs
    from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
    from voiceagent_tts.plugins.bench.targets.target import Options

    addresses = [TargetAddress.parse(text, Options()) for text in target or []]
    base = Condition(cuts=cuts, together=together, languages=tuple(_names(languages)))
    run_bargein(
        targets_or_ours(addresses, OUT),
        conditions_of(_names(conditions), base),
        SEED,
        Outputs(OUT, json, html),
        ear=judge,
    )


@app.command()
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
    spoken = _names(languages)
    options = [Options(each, api_key=configured_key(None)) for each in _names(voice) or [None]]
    addresses = [
        TargetAddress.parse(address, each).named_by_voice(len(options) > 1)
        for address in target or []
        for each in options
    ]
    run_quality(
        addresses,
        recordings,
        items_of(texts, spoken, _names(kinds)),
        (transcriber.partition("{")[0], open_transcriber(transcriber, key)),
        Outputs(OUT, json, html, save=save),
        options[0],
        together=together,
        language=spoken[0] if spoken else "en",
    )


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in _names(text)]
    except ValueError:
        numbers = [-1.0]
    if any(not 0 < number < 1e6 for number in numbers):
        raise InvalidRequestError(f"--{option}: expected positive numbers as 1,4; got {text!r}")
    return numbers


def _counts(option: str, text: str) -> list[int]:
    numbers = _numbers(option, text)
    if any(number != int(number) for number in numbers):
        raise InvalidRequestError(f"--{option}: expected whole numbers as 1,4; got {text!r}")
    return [int(number) for number in numbers]
