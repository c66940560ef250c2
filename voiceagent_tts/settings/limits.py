"""What one context, one socket and one request may take, and how long the server waits."""

from typing import Annotated

from pydantic import Field

from voiceagent_tts.settings.group import Count, Seconds, SettingsGroup


class LimitSettings(SettingsGroup):
    """Sizes and times that bound contexts, sockets and requests, for every client.

    Attributes:
        max_contexts: Maximum number of open contexts per WebSocket.
        max_sockets: Maximum number of open WebSockets.
        max_text_chars: Maximum number of characters per context that wait to be spoken.
        max_audio_s: Maximum seconds of audio per context.
        max_lead_s: Maximum seconds of audio that a context may be generated ahead of playback.
        drain_s: Seconds that open contexts may continue after SIGTERM.
        watchdog_s: Maximum age, in seconds, of the last successful synthesis. An idle server speaks
            a test word at a third of this age; beyond it, `/health/ready` reports unhealthy.
    """

    max_contexts: Count = 64
    max_sockets: Count = 2000
    max_text_chars: Count = 20_000
    max_audio_s: Seconds = 3600.0
    max_lead_s: Seconds = 8.0
    drain_s: Annotated[float, Field(ge=0, le=604_800)] = 30.0
    watchdog_s: Seconds = 60.0
