"""Adds clones and consents to a server."""

from voiceagent_tts.plugins.clones import consent_routes, voice_routes
from voiceagent_tts.plugins.clones.cloning import Cloning
from voiceagent_tts.server.state import ServerHooks

_MAX_UPLOAD_BYTES = 16 << 20
"""Maximum body of an upload: 60 s of stereo WAV at 48 kHz, and room for the other fields."""


def add_to_server(hooks: ServerHooks) -> None:
    """Add the routes, and say in the list of voices what they can make."""
    cloning = Cloning(hooks.state)
    hooks.app.state.cloning = cloning
    hooks.app.include_router(voice_routes.router)
    hooks.app.include_router(consent_routes.router)
    for path in (voice_routes.PATH, consent_routes.PATH):
        hooks.upload_bytes[path] = _MAX_UPLOAD_BYTES
    hooks.state.new_voices = cloning.new_voices
    hooks.state.listed_clones = cloning.listed
    hooks.state.find_clone = cloning.ids.find
    hooks.state.on_start.append(cloning.ids.start)
    hooks.state.on_close.append(cloning.close)
