"""Servers with the API of OpenAI, as agents ask them, which answer as a test says."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def stream_reply(request: web.Request, *parts: str) -> web.StreamResponse:
    """Answer a request for a chat completion with a reply, a message for each of its parts."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    response.force_close()  # LiveKit's plugin never closes its connections
    await response.prepare(request)
    for part in parts:
        choice = {"index": 0, "delta": {"role": "assistant", "content": part}}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        data = json.dumps({**chunk, "choices": [choice]})
        await response.write(f"data: {data}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


@contextlib.asynccontextmanager
async def openai_server(**answers: Answer) -> AsyncIterator[str]:
    """Answer within the block; yields the address of the API."""
    app = web.Application()
    for path, answer in answers.items():
        app.router.add_post(f"/v1/{path.replace('_', '/')}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()
