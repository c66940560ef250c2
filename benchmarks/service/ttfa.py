"""How long after its text does a client hear the first sound?

Each turn sends one sentence of an agent, whole, and listens to all of it. Time runs from just
before the text is sent; for a new socket, from just before it connects. Reported are

- first audio: the first message with audio has come;
- audible message: the message that holds the first audible sample has come;
- audible: that sample is heard by a listener who plays at once, the voice's own leading silence
  (`audio.levels.leading_silence_samples`) included;
- overhead: audible, less the leading silence of the same audio: all that is not the voice's;

and, because a fast start is worth nothing if the sound then stops, underruns.

One context is a closed loop: the next turn begins when the last has ended. Of many, each has a
socket of its own, as agents do; all turns of a round begin together, the next round when all have
ended. The server runs in a process of its own, unless `--url` or `--http` names one.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import httpx
import matplotlib.pyplot as plt
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.common.report import percentiles, provenance, publish
from benchmarks.service.listener import first_sound, play
from benchmarks.service.own_server import own_server
from testbed.agent_text import agent_sentences
from voiceagent_tts.client import TTSClient, authorization
from voiceagent_tts.core import BYTES_PER_SAMPLE
from voiceagent_tts.protocol.client_connection import ClientAudio

_WARM_UP_TURNS = 3
_HTTP_TIMEOUT_S = 60.0
_SERVER_LOG = Path("out/ttfa-server.log")


class Door(Protocol):
    """One connection to a server, by which it speaks."""

    def say(self, text: str) -> AsyncIterator[bytes]:
        """Yield the PCM16 at 24 kHz of `text` as it comes."""
        ...


OpenDoor = Callable[[], AbstractAsyncContextManager[Door]]


class WebSocketDoor:
    """A socket of `tts.v1`."""

    def __init__(self, client: TTSClient, voice: str | None) -> None:
        self._client = client
        self._voice = voice

    async def say(self, text: str) -> AsyncIterator[bytes]:
        """Speak one context with the server's own pacing."""
        async for event in self._client.say(text, voice=self._voice):
            if isinstance(event, ClientAudio):
                yield event.pcm


class HttpDoor:
    """A kept-alive connection to any server with OpenAI's `/v1/audio/speech`."""

    def __init__(self, client: httpx.AsyncClient, voice: str, model: str) -> None:
        self._client = client
        self._fields = {"voice": voice, "model": model, "response_format": "pcm"}

    async def say(self, text: str) -> AsyncIterator[bytes]:
        """Speak one request; pieces are cut to whole samples."""
        body = {**self._fields, "input": text, "stream": True}
        rest = b""
        async with self._client.stream("POST", "/v1/audio/speech", json=body) as response:
            response.raise_for_status()
            async for data in response.aiter_raw():
                data = rest + data
                whole = len(data) - len(data) % BYTES_PER_SAMPLE
                rest = data[whole:]
                if whole:
                    yield data[:whole]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn's listener heard; seconds since the turn began."""

    first_audio_s: float
    audible_message_s: float
    audible_s: float
    leading_silence_s: float
    underruns: int
    underrun_s: float

    @property
    def overhead_s(self) -> float:
        """What the voice's own leading silence does not explain."""
        return self.audible_s - self.leading_silence_s


@dataclass(frozen=True, slots=True)
class Section:
    """Turns under one condition."""

    contexts: int
    """How many turns begin together."""
    is_warm: bool
    """Whether the sockets are there before the turn."""

    @property
    def label(self) -> str:
        """For people."""
        return f"{'warm' if self.is_warm else 'new'}, {self.contexts}"

    def field(self, name: str) -> str:
        """Name of a figure of this section in the JSON object."""
        prefix = "" if self.is_warm else "new_socket_"
        suffix = "" if self.contexts == 1 else f"_{self.contexts}"
        return f"{prefix}{name}{suffix}"


def sections_of(contexts: int) -> tuple[Section, ...]:
    """Warm and new sockets, one context and `contexts` at once."""
    counts = (1, contexts) if contexts > 1 else (1,)
    return tuple(Section(count, is_warm) for is_warm in (True, False) for count in counts)


async def measure(
    section: Section,
    open_door: OpenDoor,
    texts: Sequence[str],
    on_turn: Callable[[], None] = lambda: None,
) -> list[Turn]:
    """Take one turn for each text, `section.contexts` at a time.

    Raises:
        VoiceAgentError, httpx.HTTPError: a turn failed; a benchmark with gaps is none.
        RuntimeError: a turn had no sound.
    """
    turns: list[Turn] = []
    async with contextlib.AsyncExitStack() as stack:
        doors: list[OpenDoor] = [open_door] * section.contexts
        if section.is_warm:
            opened = [await stack.enter_async_context(open_door()) for _ in doors]
            doors = [lambda door=door: contextlib.nullcontext(door) for door in opened]
            for text in texts[:_WARM_UP_TURNS]:
                await asyncio.gather(*(take_turn(door, text) for door in doors))
        for start in range(0, len(texts), section.contexts):
            round_texts = texts[start : start + section.contexts]
            pairs = zip(doors, round_texts, strict=False)
            turns += await asyncio.gather(*(take_turn(*pair, on_turn) for pair in pairs))
    return turns


async def take_turn(
    open_door: OpenDoor, text: str, on_turn: Callable[[], None] = lambda: None
) -> Turn:
    """Speak `text` and listen to its end."""
    times: list[float] = []
    messages: list[bytes] = []
    began = time.perf_counter()
    async with open_door() as door:
        async for pcm in door.say(text):
            times.append(time.perf_counter() - began)
            messages.append(pcm)
    sound = first_sound(times, messages)
    if sound is None:
        raise RuntimeError(f"expected sound, got {len(messages)} messages without any")
    playback = play(times, [len(pcm) // BYTES_PER_SAMPLE for pcm in messages])
    on_turn()
    return Turn(
        first_audio_s=sound.first_audio,
        audible_message_s=sound.audible_message,
        audible_s=sound.audible,
        leading_silence_s=sound.leading_silence_s,
        underruns=playback.underruns,
        underrun_s=playback.underrun_s,
    )


def summarize(section: Section, turns: Sequence[Turn]) -> dict[str, float]:
    """The figures of a section, under their names in the JSON object."""
    series = {
        "first_audio": [turn.first_audio_s for turn in turns],
        "audible_message": [turn.audible_message_s for turn in turns],
        "audible": [turn.audible_s for turn in turns],
        "audible_overhead": [turn.overhead_s for turn in turns],
        "leading_silence": [turn.leading_silence_s for turn in turns],
    }
    figures: dict[str, float] = {}
    for name, values_s in series.items():
        for rank, value in percentiles([value_s * 1000 for value_s in values_s]).items():
            figures[section.field(f"{name}_{rank}")] = value
    figures[section.field("underruns")] = sum(turn.underruns for turn in turns)
    figures[section.field("underrun_ms")] = round(sum(turn.underrun_s for turn in turns) * 1000, 2)
    return figures


async def run(
    open_door: OpenDoor, *, turns: int, contexts: int, seed: int, console: Console
) -> dict[Section, list[Turn]]:
    """Measure every section, with a progress bar on `console`."""
    results: dict[Section, list[Turn]] = {}
    with Progress(console=console, transient=True) as progress:
        for section in sections_of(contexts):
            count = -(-turns // section.contexts) * section.contexts  # rounds are full
            texts = list(itertools.islice(agent_sentences(seed), count))
            task = progress.add_task(section.label, total=count)
            results[section] = await measure(
                section, open_door, texts, lambda task=task: progress.advance(task)
            )
    return results


_COLUMNS = {
    "first p50": "first_audio_p50_ms",
    "audible p50": "audible_p50_ms",
    "audible p95": "audible_p95_ms",
    "audible p99": "audible_p99_ms",
    "overhead p95": "audible_overhead_p95_ms",
    "silence p50": "leading_silence_p50_ms",
    "underruns": "underruns",
}


def table_of(results: dict[Section, list[Turn]]) -> Table:
    """The figures for people."""
    table = Table(title="From text to sound, in ms", box=None)
    table.add_column("socket", no_wrap=True)
    for heading in _COLUMNS:
        table.add_column(heading, justify="right")
    for section, turns in results.items():
        figures = summarize(section, turns)
        cells = (str(figures[section.field(name)]) for name in _COLUMNS.values())
        table.add_row(section.label, *cells)
    return table


def plot(results: dict[Section, list[Turn]], path: Path) -> None:
    """Draw how the audible TTFA of each section is distributed."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for section, turns in results.items():
        audible_ms = sorted(turn.audible_s * 1000 for turn in turns)
        share = [(index + 1) / len(audible_ms) for index in range(len(audible_ms))]
        axes.step(audible_ms, share, where="post", label=section.label)
    axes.axhline(0.95, color="0.7", linewidth=0.8, zorder=0)
    axes.annotate("p95", (1, 0.95), xycoords=("axes fraction", "data"), va="bottom", ha="right")
    axes.set(xlabel="text sent → first sound heard (ms)", ylabel="share of turns")
    axes.set(xlim=(0, None), ylim=(0, 1.01), title="Audible time to first audio")
    axes.legend(title="socket, contexts", loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def websocket_door(url: str, voice: str | None, api_key: str | None) -> OpenDoor:
    """Opens sockets of `tts.v1` at `url`."""

    @contextlib.asynccontextmanager
    async def open_door() -> AsyncIterator[Door]:
        async with TTSClient(url, api_key) as client:
            yield WebSocketDoor(client, voice)

    return open_door


def http_door(url: str, voice: str | None, model: str, api_key: str | None) -> OpenDoor:
    """Opens connections to an OpenAI-compatible server at `url`, without or with its `/v1`."""
    base_url = url.rstrip("/").removesuffix("/v1")
    headers = authorization(api_key)

    @contextlib.asynccontextmanager
    async def open_door() -> AsyncIterator[Door]:
        async with httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=_HTTP_TIMEOUT_S
        ) as client:
            yield HttpDoor(client, voice or "alloy", model)

    return open_door


@contextlib.asynccontextmanager
async def door_to(
    url: str | None, http: str | None, voice: str | None, model: str, api_key: str | None
) -> AsyncIterator[OpenDoor]:
    """The door that the command line asks for; behind a server of our own where it names none."""
    if http is not None:
        yield http_door(http, voice, model, api_key)
    elif url is not None:
        yield websocket_door(url, voice, api_key)
    else:
        async with own_server(log=_SERVER_LOG) as server:
            yield websocket_door(server.url, voice, None)


def main(
    turns: Annotated[int, typer.Option(min=1, help="Turns in each section.")] = 300,
    contexts: Annotated[int, typer.Option(min=1, help="Turns at once, beside one.")] = 20,
    url: Annotated[str | None, typer.Option(help="A running server: ws://HOST:PORT.")] = None,
    http: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server: http://HOST:PORT.")
    ] = None,
    voice: Annotated[
        str | None, typer.Option(help="The server's own default if not given.")
    ] = None,
    model: Annotated[str, typer.Option(help="With --http.")] = "tts-1",
    api_key: Annotated[str | None, typer.Option(help="With --url or --http.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sentences.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
    png: Annotated[Path, typer.Option(help="Where the plot goes.")] = Path("out/ttfa.png"),
) -> None:
    """Measure the time to first audio as a client hears it."""
    origin = provenance()

    async def run_all() -> dict[Section, list[Turn]]:
        async with door_to(url, http, voice, model, api_key) as open_door:
            return await run(
                open_door, turns=turns, contexts=contexts, seed=seed, console=Console(stderr=True)
            )

    results = asyncio.run(run_all())
    Console().print(table_of(results))
    plot(results, png)
    figures: dict[str, Any] = {"turns": sum(len(taken) for taken in results.values())}
    for section, taken in results.items():
        figures |= summarize(section, taken)
    publish({**figures, **origin}, json)


if __name__ == "__main__":
    typer.run(main)
