"""The OpenAPI document: FastAPI's, with the errors that are sent and the ways to send a key."""

import asyncio
import json
from collections import defaultdict
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.server.state import ServerHooks

_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_OF_BODIES = (408, 413)
_OF_SOCKETS = (405, 409, 426, 502)
"""Statuses of other methods, of contexts, and of handshakes; no documented operation sends them."""
_TEXT = {"type": "string"}
_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": {"type": "null"},
                "code": {"type": "string", "enum": [code.value for code in ErrorCode]},
            },
            "required": ["message", "type", "code"],
        }
    },
    "required": ["error"],
}


async def made_document(app: FastAPI) -> bytes:
    """The document of an app as JSON, which its first request has made, in a thread."""
    if not hasattr(app.state, "document"):
        making = asyncio.to_thread(lambda: json.dumps(document_of(app, app.state.hooks)).encode())
        app.state.document = asyncio.create_task(making)
    return await asyncio.shield(app.state.document)  # a client that goes leaves it to the others


def document_of(app: FastAPI, hooks: ServerHooks) -> dict[str, Any]:
    """Return FastAPI's document, which lists no error but 422, with the errors that are sent."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if hooks.is_open(path):
                operation["security"] = []
            else:
                content = {"application/json": _content(path, hooks)}
                operation["responses"] |= _errors(content, has_body="requestBody" in operation)
    components = document.setdefault("components", {"schemas": {}})
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    components["schemas"]["Error"] = _ERROR
    components["securitySchemes"] = _SECURITY_SCHEMES
    document["security"] = [{name: []} for name in _SECURITY_SCHEMES]
    return document


def _content(path: str, hooks: ServerHooks) -> dict[str, Any]:
    """Schema of an error on a route."""
    form = hooks.form_of(path)
    if form is None:
        return {"schema": {"$ref": "#/components/schemas/Error"}}
    return {"schema": {"type": "object"}, "example": form.body(VoiceAgentError("what was wrong"))}


def _errors(content: dict[str, Any], *, has_body: bool) -> dict[str, Any]:
    """The error responses of an operation, with the codes that each status may have."""
    codes = defaultdict[int, list[ErrorCode]](list)
    for code in ErrorCode:
        if code.status not in _OF_SOCKETS and (has_body or code.status not in _OF_BODIES):
            codes[code.status].append(code)
    return {
        str(status): {"description": ", ".join(sorted(of_status)), "content": content}
        for status, of_status in sorted(codes.items())
    }
