"""What one context, one socket and one request may take, and how long the server waits."""

from pydantic import Field

from voiceagent_tts.settings.group import SettingsGroup


class LimitSettings(SettingsGroup):
    """Sizes and times that bound contexts, sockets and requests, for every client.

    Attributes:
        max_contexts: Maximum number of open contexts per WebSocket.
        max_sockets: Maximum number of open WebSockets.
        max_text_chars: Maximum number of characters per context that wait to be spoken.
        max_audio_s: Maximum seconds of audio per context.
        context_idle_s: Seconds without new text after which a context is ended.
        max_lead_s: Maximum seconds of audio that a context may be generated ahead of playback.
        first_audio_s: Seconds that an HTTP request waits for its first audio.
        slow_consumer_s: Seconds after which a WebSocket that does not read is closed (close code
            4008).
        ping_interval_s: Seconds between keepalive pings; also the time limit for the answer.
        drain_s: Seconds that open contexts may continue after SIGTERM.
        watchdog_s: Maximum age, in seconds, of the last successful synthesis. An idle server speaks
            a test word at a third of this age; beyond it, `/health/ready` reports unhealthy.
    """

    max_contexts: int = Field(default=64, ge=1)
    max_sockets: int = Field(default=2000, ge=1)
    max_text_chars: int = Field(default=20_000, ge=1)
    max_audio_s: float = Field(default=3600.0, gt=0)
    context_idle_s: float = Field(default=120.0, gt=0)
    max_lead_s: float = Field(default=8.0, gt=0)
    first_audio_s: float = Field(default=30.0, gt=0)
    slow_consumer_s: float = Field(default=15.0, gt=0)
    ping_interval_s: float = Field(default=20.0, gt=0)
    drain_s: float = Field(default=30.0, ge=0)
    watchdog_s: float = Field(default=60.0, gt=0)
