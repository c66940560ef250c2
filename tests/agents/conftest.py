"""A server with OpenAI-compatible models, and Pipecat imported once."""

import json
import warnings
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

with warnings.catch_warnings():
    # Pipecat's deprecated classes warn where they are defined, in the name of `abc`.
    warnings.simplefilter("ignore")
    import pipecat.services.tts_service  # noqa: F401


@pytest.fixture
async def local_models() -> AsyncIterator[str]:
    """An OpenAI-compatible server with one transcript and one answer, which name its model.

    The model `broken` is refused.
    """

    async def transcribe(request: web.Request) -> web.Response:
        form = await request.post()
        if form["model"] == "broken":
            return web.json_response({"error": {"message": "no such model"}}, status=400)
        response = web.json_response({"text": f"heard by {form['model']}"})
        response.force_close()  # LiveKit's plugin never closes its connections
        return response

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["model"] == "broken":
            return web.json_response({"error": {"message": "no such model"}}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.force_close()
        await response.prepare(request)
        choice = {"index": 0, "delta": {"content": f"said by {body['model']}"}}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        data = json.dumps({**chunk, "choices": [choice]})
        await response.write(f"data: {data}\n\ndata: [DONE]\n\n".encode())
        return response

    app = web.Application()
    app.router.add_post("/v1/audio/transcriptions", transcribe)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()
