"""What becomes of requests that are not answered when a server ends."""

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testbed.server_process import serving
from testbed.servers import StartServer
from testbed.waiting import until


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/text-to-speech/en"])
async def test_a_request_that_outlasts_the_drain_is_told_why(
    start_server: StartServer, path: str
) -> None:
    """Its body is still on its way when the server waits no longer: an error in JSON, to retry."""
    server = await start_server()
    uvicorn, address = server.uvicorn_server, urlsplit(server.url)
    uvicorn.config.timeout_graceful_shutdown = 0
    head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 9\r\n"
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
    await until(lambda: bool(uvicorn.server_state.tasks), "the request has begun")
    uvicorn.should_exit = True
    status, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    answer = json.loads(await reader.readuntil(b"}}"))
    writer.close()
    assert status == b"HTTP/1.1 503 Service Unavailable" and b"x-request-id" in rest.lower()
    assert "draining" in json.dumps(answer)


@pytest.mark.parametrize("is_read", [False, True])
async def test_an_answer_that_outlasts_the_drain_is_no_error_of_the_server(
    is_read: bool, tmp_path: Path
) -> None:
    """Its client reads all, or nothing: the line of the request is all that the log says."""
    log = tmp_path / "log"
    body = json.dumps({"input": "One two three. " * 500, "response_format": "pcm"})
    with serving(log=log, log_json="true", drain_s="1") as server:
        address = urlsplit(server.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1)
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n{body}".encode())
        assert (await reader.read(15)).startswith(b"HTTP/1.1 200")
        server.terminate()
        if is_read:
            await reader.read()
        assert await asyncio.to_thread(server.process.wait) == 0
        writer.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (line,) = [line for line in lines if line["event"] == "http_request"]
    assert (line["status"], line["code"], line["level"]) == (200, "draining", "info")
    assert not [line for line in lines if "ASGI" in line["event"] or "exception" in line]
