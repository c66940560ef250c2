"""The pages for people: `/` speaks and is interrupted, `/docs` shows the HTTP API.

They are plain files in `static/`, with no build step and no content from other sites. Loading the
pages needs no API key; their requests send one.
"""

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from voiceagent_tts.server.state import ServerHooks

OPEN_PATHS = ("/", "/docs", "/docs/*", "/static", "/static/*")
"""Paths that are served without a key: they hold nothing of this server but its files."""

_FOLDER = Path(__file__).parent / "static"
_HEADERS = {
    # A page may not load, run or send anything that is not this server's.
    "Content-Security-Policy": "default-src 'self'; media-src blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Accept-Ranges": "none",
    "Cache-Control": "no-cache",  # the browser asks whether its copy is the current one
}


class PageFiles(StaticFiles):
    """The files of the pages, with the pages' headers."""

    def __init__(self) -> None:
        super().__init__(directory=_FOLDER)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Serve one file; it is small, and open until its last byte is sent if it is not copied."""
        response = await super().get_response(path, scope)
        if isinstance(response, FileResponse):
            response = Response(Path(response.path).read_bytes(), headers=response.headers)
        response.headers.update(_HEADERS)
        return response


_FILES = PageFiles()

router = APIRouter(include_in_schema=False)


def add_to_server(hooks: ServerHooks) -> None:
    """Add the pages and their files."""
    hooks.app.include_router(router)
    hooks.app.mount("/static", _FILES)
    hooks.open_paths.extend(OPEN_PATHS)
    hooks.state.has_page = True


@router.get("/")
async def page(request: Request) -> Response:
    """Serve the page that speaks."""
    return await _FILES.get_response("index.html", request.scope)


@router.get("/docs")
async def api_page(request: Request) -> Response:
    """Serve the page that shows the HTTP API."""
    return await _FILES.get_response("docs.html", request.scope)
