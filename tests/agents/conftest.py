"""A server with OpenAI-compatible models, and Pipecat imported once."""

import warnings
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from testbed.openai_server import openai_server, stream_reply

with warnings.catch_warnings():
    # Pipecat's deprecated classes warn where they are defined, in the name of `abc`.
    warnings.simplefilter("ignore")
    import pipecat.services.tts_service  # noqa: F401


@pytest.fixture
async def local_models() -> AsyncIterator[str]:
    """An OpenAI-compatible server with one transcript and one answer, which name its model.

    The model `broken` is refused; of `page` the answer is a web page, as of a wrong address.
    """

    async def transcribe(request: web.Request) -> web.Response:
        form = await request.post()
        if form["model"] == "broken":
            return web.json_response({"error": {"message": "no such model"}}, status=400)
        if form["model"] == "page":
            return web.Response(text="<html></html>", content_type="text/html")
        response = web.json_response({"text": f"heard by {form['model']}"})
        response.force_close()  # LiveKit's plugin never closes its connections
        return response

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["model"] == "broken":
            return web.json_response({"error": {"message": "no such model"}}, status=400)
        return await stream_reply(request, f"said by {body['model']}")

    async with openai_server(audio_transcriptions=transcribe, chat_completions=answer) as url:
        yield url
