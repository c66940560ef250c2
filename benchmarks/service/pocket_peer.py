"""Beside the server of the package `pocket-tts`: how soon does `--engine pocket` speak?

    python -m benchmarks.service.pocket_peer

Both servers run here, one after the other, on the same random weights, in the sizes of a published
model, without a download. What they say is noise; how long it is follows from the text.
"""

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console

from benchmarks.common.report import provenance, publish
from testbed.pocket import PocketHome
from voiceagent_tts.bench.callers import Section
from voiceagent_tts.bench.document import flat
from voiceagent_tts.bench.loads import Load, Style
from voiceagent_tts.bench.own_server import own_server
from voiceagent_tts.bench.run import measure, table_of
from voiceagent_tts.bench.targets.addresses import TargetAddress
from voiceagent_tts.bench.targets.target import Options
from voiceagent_tts.bench.texts import choose_texts
from voiceagent_tts.client import http_address
from voiceagent_tts.errors import EngineError

_VOICE = "alba"
_START_S, _POLL_S = 120.0, 0.2
_WARM_UP_S = 2.0


@contextlib.asynccontextmanager
async def pocket_server(model: str, home: Path, log: Path) -> AsyncIterator[str]:
    """Run the package's own server until the block ends; yields its address.

    Raises:
        EngineError: it did not start.
    """
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("pocket-tts")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(program), "serve", "--host", "127.0.0.1", "--port", str(port),
            "--language", model, "--default-voice", _VOICE,
            stdout=output, stderr=output, env=os.environ | _hub(home),
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        await _healthy(f"{url}/health", process, log)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _healthy(url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_S), httpx.AsyncClient(trust_env=False) as client:
            while process.returncode is None:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(url)).is_success:
                        return
                await asyncio.sleep(_POLL_S)
    raise EngineError(f"expected the server of pocket-tts to start; see {log}")


def _hub(home: Path) -> dict[str, str]:
    """The environment in which the hub's client reads `home`, without a network."""
    return {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}


async def compare(
    model: str, together: int, seconds: float, folder: Path, console: Console
) -> list[dict[str, Any]]:
    """Measure the package's server, then ours; a section for each.

    Raises:
        EngineError: the package's server did not start.
        RuntimeError: ours did not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sections = [Section(Load(together=together), seconds, _WARM_UP_S)]
    style = Style(choose_texts(["en"], ["short", "menu"]))
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="voiceagent-") as directory:
        home = Path(directory)
        PocketHome(home, model, is_short=False).store()
        async with pocket_server(model, home, folder / "pocket-tts.log") as url:
            theirs = TargetAddress("pocket-tts serve", f"pocket-tts+{url}", Options())
            measured += await measure([theirs], sections, style, 0.0, console)
        environment = {**_hub(home), "VOICEAGENT_TTS_VOICES_FOLDER": str(home / "voices")}
        arguments = ("--engine", "pocket", "--model", model)
        async with own_server(
            *arguments, log=folder / "ours.log", environment=environment
        ) as server:
            voice = Options(voice=_VOICE)
            unpaced = Options(voice=_VOICE, arguments={"max_lead_s": 0})
            ours = [
                TargetAddress("ours, HTTP", http_address(server.url, ""), voice),
                TargetAddress("ours, WebSocket, unpaced", server.url, unpaced),
            ]
            measured += await measure(ours, sections, style, 0.0, console)
    return measured


def main(
    model: Annotated[str, typer.Option(help="Published model whose sizes are taken.")] = "english",
    together: Annotated[int, typer.Option(min=1, help="Utterances at once.")] = 1,
    seconds: Annotated[float, typer.Option(help="Duration for each server.")] = 20.0,
    out: Annotated[Path, typer.Option(help="Folder for logs.")] = Path("out"),
) -> None:
    """Measure both, and print a table and one JSON object."""
    origin = provenance()
    console = Console(stderr=True)
    sections = asyncio.run(compare(model, together, seconds, out, console))
    Console().print(table_of(sections))
    publish({"kind": "pocket_peer", **origin, "sections": [flat(each) for each in sections]})


if __name__ == "__main__":
    typer.run(main)
