import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import parse_qs

import numpy as np
import pytest

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.callers import Callers, Section
from voiceagent_tts.plugins.bench.loads import Load, Style
from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.bench.texts import Text
from voiceagent_tts.plugins.bench.utterance import Request, Utterance
from voiceagent_tts.plugins.speech.containers import wav_header


def test_an_address_has_a_name_and_arguments() -> None:
    """`NAME=ADDRESS{JSON}`; its own voice replaces the common one."""
    options = Options(voice="common", model="m", arguments={"a": 1})
    parsed = TargetAddress.parse('our door=ws://host:1/x?a=b{"voice": "nova", "b": 2}', options)
    assert (parsed.name, parsed.address) == ("our door", "ws://host:1/x?a=b")
    assert parsed.options == Options("nova", "m", None, {"a": 1, "b": 2})
    assert TargetAddress.parse("http://host", options).name == "http://host"
    for address in ("ws://host", "pipecat:module.Class"):
        of_process = TargetAddress.parse(address + '{"server_pid": 12, "a": 3}', Options()).options
        assert of_process == Options(arguments={"a": 3}, server_pid=12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "ws://host{",
        "ws://host{]}",
        "ftp://host",
        "=ws://",
        "x" * 100_000,
        'ws://host{"server_pid": "all"}',
        'ws://host{"server_pid": 0}',
        'ws://host{"api_key": 3}',
        'http://host{"voice": ["a"]}',
    ],  # fmt: skip
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """One sentence says which kinds of addresses there are."""
    with pytest.raises(InvalidRequestError, match="expected"):
        TargetAddress.parse(text, Options()).open()


@contextlib.asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[str, list[tuple[str, str]]]]:
    """A server with one answer: its address, and the first line and body of each request."""
    asked: list[tuple[str, str]] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(head.partition("content-length: ")[2].split("\r")[0] or 0)
                body = (await reader.readexactly(size)).decode()
                asked.append((head.split("\r")[0], body))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(answer))
                writer.write(b"Content-Type: audio/wav\r\n\r\n" + answer)

    async with await asyncio.start_server(converse, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


@pytest.mark.parametrize("has_new_sockets", [False, True])
async def test_an_utterance_opens_its_socket_with_its_own_request(has_new_sockets: bool) -> None:
    """A request that no agent makes would be in the latency; the time to connect is recorded."""
    async with answering(bytes(4_800)) as (url, asked):
        callers = Callers(TargetAddress.parse(url, Options()).open())
        plan = Section(Load(together=1), 1e-9, has_new_sockets=has_new_sockets)
        (spoken,) = (await callers.run(plan, Style([Text("en", "short", "Yes.")]))).utterances
        await callers.aclose()
    methods = [line.split()[0] for line, _ in asked]
    assert methods == (["post"] if has_new_sockets else ["options", "post"])
    assert spoken.failure is None
    if has_new_sockets:
        assert spoken.connect_s is not None and 0 < spoken.connect_s < spoken.times[0] - spoken.due
    else:
        assert spoken.connect_s is None


async def test_the_form_of_pocket_tts_is_filled_in() -> None:
    """Its server gets the text and the voice as fields of a form, and answers with a WAV file."""
    samples = np.full(2_400, 9_000, "<i2").tobytes()
    async with answering(wav_header(SAMPLE_RATE_HZ, len(samples)) + samples) as (url, asked):
        target = TargetAddress.parse(f'pocket-tts+{url}{{"voice": "alba"}}', Options()).open()
        connection = await target.connect()
        recorder = Recorder(Utterance(Request("Hello.")))
        await connection.start(recorder.utterance.request, recorder)
        await connection.send("Hello.")
        await connection.end()
        await recorder.over.wait()
        await connection.aclose()
    line, form = asked[-1]
    assert line == "post /tts http/1.1"
    assert parse_qs(form) == {"text": ["Hello."], "voice_url": ["alba"]}
    assert (recorder.utterance.failure, sum(recorder.utterance.sizes)) == (None, 2_400)
