"""Adds the OpenAPI document to a server, and makes it when a client first asks for it."""

from fastapi import APIRouter, Request, Response

from voiceagent_tts.server.state import ServerHooks

router = APIRouter(include_in_schema=False)


def add_to_server(hooks: ServerHooks) -> None:
    """Add the document."""
    hooks.app.include_router(router)


@router.api_route("/openapi.json", methods=["GET", "HEAD"])
async def document(request: Request) -> Response:
    """Answer with the OpenAPI document."""
    from voiceagent_tts.plugins.openapi.document import made_document  # here: few ask for it

    return Response(await made_document(request.app), media_type="application/json")
