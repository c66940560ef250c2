"""Servers with the API of OpenAI, as agents ask them, which answer as a test says."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

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
async def openai_server(
    port: int = 0, *, get: Mapping[str, Answer] | None = None, **post: Answer
) -> AsyncIterator[str]:
    """Answer within the block; yields the address of the API.

    Where a client closes its connection before the end, what answers it is cancelled.
    """
    app = web.Application()
    for method, answers in (("GET", get or {}), ("POST", post)):
        for path, answer in answers.items():
            app.router.add_route(method, f"/v1/{path.replace('_', '/')}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()
