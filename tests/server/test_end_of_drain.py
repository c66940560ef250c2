"""What becomes of requests that are not answered when a server ends."""

import asyncio
import json
from urllib.parse import urlsplit

import pytest

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
