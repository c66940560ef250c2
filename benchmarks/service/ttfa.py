"""How long after sending its text does a client hear the first sound?

Each turn sends one whole sentence of an agent and receives all of its audio. Time starts just
before the text is sent; with a new socket, just before it connects. The benchmark reports

- first audio: arrival of the first message with audio;
- audible message: arrival of the message with the first audible sample;
- audible: when a listener who plays on arrival hears that sample, after the voice's own leading
  silence (`audio.levels.leading_silence_samples`);
- overhead: audible minus that leading silence, which is everything except the voice's own delay;
- underruns, because a fast start is worthless if the sound then stops.

With one context, the next turn begins when the last has ended (a closed loop). With several, each
has its own socket, as agents do; all turns of a round begin together, and the next round begins
when all have ended. Unless `--url` or `--http` names a server, one is started as a separate
process.
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


class Connection(Protocol):
    """A connection to a server that speaks texts."""

    def say(self, text: str) -> AsyncIterator[bytes]:
        """Yield the PCM16 of `text` at 24 kHz as it arrives."""
        ...


Connect = Callable[[], AbstractAsyncContextManager[Connection]]


class WebSocketConnection:
    """A `tts.v1` socket."""

    def __init__(self, client: TTSClient, voice: str | None) -> None:
        self._client = client
        self._voice = voice

    async def say(self, text: str) -> AsyncIterator[bytes]:
        """Speak `text` in one context with the server's default pacing."""
        async for event in self._client.say(text, voice=self._voice):
            if isinstance(event, ClientAudio):
                yield event.pcm


class HttpConnection:
    """A kept-alive connection to any server with OpenAI's `/v1/audio/speech`."""

    def __init__(self, client: httpx.AsyncClient, voice: str, model: str) -> None:
        self._client = client
        self._fields = {"voice": voice, "model": model, "response_format": "pcm"}

    async def say(self, text: str) -> AsyncIterator[bytes]:
        """Speak `text` in one request; every yielded piece has whole samples."""
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
    """Times and underruns of one turn; seconds since the turn began."""

    first_audio_s: float
    audible_message_s: float
    audible_s: float
    leading_silence_s: float
    underruns: int
    underrun_s: float

    @property
    def overhead_s(self) -> float:
        """Audible time without the voice's own leading silence."""
        return self.audible_s - self.leading_silence_s


@dataclass(frozen=True, slots=True)
class Section:
    """Turns under one condition."""

    contexts: int
    """Number of turns that begin together."""
    is_warm: bool
    """Whether sockets are open before the turn begins."""

    @property
    def label(self) -> str:
        """Label in tables and plots."""
        return f"{'warm' if self.is_warm else 'new'}, {self.contexts}"

    def field(self, name: str) -> str:
        """Return the name of a figure of this section in the JSON object."""
        prefix = "" if self.is_warm else "new_socket_"
        suffix = "" if self.contexts == 1 else f"_{self.contexts}"
        return f"{prefix}{name}{suffix}"


def sections_of(contexts: int) -> tuple[Section, ...]:
    """Return the sections: warm and new sockets, with one context and with `contexts` at once."""
    counts = (1, contexts) if contexts > 1 else (1,)
    return tuple(Section(count, is_warm) for is_warm in (True, False) for count in counts)


async def measure(
    section: Section,
    connect: Connect,
    texts: Sequence[str],
    on_turn: Callable[[], None] = lambda: None,
) -> list[Turn]:
    """Take one turn for each text, `section.contexts` at a time.

    Raises:
        VoiceAgentError, httpx.HTTPError: a turn failed, so the measurement would be incomplete.
        RuntimeError: a turn had no sound.
    """
    turns: list[Turn] = []
    async with contextlib.AsyncExitStack() as stack:
        connects: list[Connect] = [connect] * section.contexts
        if section.is_warm:
            opened = [await stack.enter_async_context(connect()) for _ in connects]
            connects = [
                lambda connection=connection: contextlib.nullcontext(connection)
                for connection in opened
            ]
            for text in texts[:_WARM_UP_TURNS]:
                await asyncio.gather(*(take_turn(connection, text) for connection in connects))
        for start in range(0, len(texts), section.contexts):
            round_texts = texts[start : start + section.contexts]
            pairs = zip(connects, round_texts, strict=False)
            turns += await asyncio.gather(*(take_turn(*pair, on_turn) for pair in pairs))
    return turns


async def take_turn(
    connect: Connect, text: str, on_turn: Callable[[], None] = lambda: None
) -> Turn:
    """Speak `text` and receive its audio to the end."""
    times: list[float] = []
    messages: list[bytes] = []
    began = time.perf_counter()
    async with connect() as connection:
        async for pcm in connection.say(text):
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
    """Return the figures of a section, under their names in the JSON object."""
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
    connect: Connect, *, turns: int, contexts: int, seed: int, console: Console
) -> dict[Section, list[Turn]]:
    """Measure every section, with a progress bar on `console`."""
    results: dict[Section, list[Turn]] = {}
    with Progress(console=console, transient=True) as progress:
        for section in sections_of(contexts):
            count = -(-turns // section.contexts) * section.contexts  # only full rounds
            texts = list(itertools.islice(agent_sentences(seed), count))
            task = progress.add_task(section.label, total=count)
            results[section] = await measure(
                section, connect, texts, lambda task=task: progress.advance(task)
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
    """Return the figures as a table."""
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
    """Draw the distribution of audible TTFA in each section."""
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


def websocket_to(url: str, voice: str | None, api_key: str | None) -> Connect:
    """Return a function that opens a `tts.v1` socket at `url`."""

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Connection]:
        async with TTSClient(url, api_key) as client:
            yield WebSocketConnection(client, voice)

    return connect


def http_to(url: str, voice: str | None, model: str, api_key: str | None) -> Connect:
    """Return a function that connects to an OpenAI-compatible server, with or without `/v1`."""
    base_url = url.rstrip("/").removesuffix("/v1")
    headers = authorization(api_key)

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Connection]:
        async with httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=_HTTP_TIMEOUT_S
        ) as client:
            yield HttpConnection(client, voice or "alloy", model)

    return connect


@contextlib.asynccontextmanager
async def connect_to(
    url: str | None, http: str | None, voice: str | None, model: str, api_key: str | None
) -> AsyncIterator[Connect]:
    """Yield the function that connects as the command line requests; start a server if needed."""
    if http is not None:
        yield http_to(http, voice, model, api_key)
    elif url is not None:
        yield websocket_to(url, voice, api_key)
    else:
        async with own_server(log=_SERVER_LOG) as server:
            yield websocket_to(server.url, voice, None)


def main(
    turns: Annotated[int, typer.Option(min=1, help="Turns in each section.")] = 300,
    contexts: Annotated[int, typer.Option(min=1, help="Concurrent turns, also measured.")] = 20,
    url: Annotated[str | None, typer.Option(help="A running server: ws://HOST:PORT.")] = None,
    http: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server: http://HOST:PORT.")
    ] = None,
    voice: Annotated[str | None, typer.Option(help="Voice; by default the server's.")] = None,
    model: Annotated[str, typer.Option(help="Model, with --http.")] = "tts-1",
    api_key: Annotated[str | None, typer.Option(help="Key, with --url or --http.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sentences.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.")] = None,
    png: Annotated[Path, typer.Option(help="File of the plot.")] = Path("out/ttfa.png"),
) -> None:
    """Measure the time to first audio as a client hears it."""
    origin = provenance()

    async def run_all() -> dict[Section, list[Turn]]:
        async with connect_to(url, http, voice, model, api_key) as connect:
            return await run(
                connect, turns=turns, contexts=contexts, seed=seed, console=Console(stderr=True)
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
