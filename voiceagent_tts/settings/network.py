"""Where the server listens, what each client may take, and what is logged."""

from typing import Annotated

from pydantic import Field, model_validator

from voiceagent_tts.settings.group import Count, InputFile, LogFile, Seconds, SettingsGroup

DEFAULT_PORT = 8765
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class NetworkSettings(SettingsGroup):
    """Addresses and ports of the server, and its certificate.

    Attributes:
        host: Address to bind. Any address but loopback needs `keys`, `api_keys` or
            `allow_anonymous`.
        port: TCP port. 0 picks a free port, which the `ready` line names.
        ssl_certfile: Certificate in PEM form, to serve HTTPS and WSS without a proxy.
        ssl_keyfile: Key of the certificate. Default: it is in `ssl_certfile`.
        ssl_self_signed: Serve HTTPS and WSS with a certificate that the server makes itself.
            Browsers warn of it once. They give sound and microphone to pages of other machines
            only over HTTPS.
        slots_port: Port on which HAProxy's agent check reads what share of the rows is free, and
            whether the server drains. Default: none.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    ssl_certfile: InputFile | None = None
    ssl_keyfile: InputFile | None = None
    ssl_self_signed: bool = False
    slots_port: int | None = Field(default=None, ge=0, le=65535)

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach the server."""
        return self.host in LOOPBACK

    @property
    def has_tls(self) -> bool:
        """Whether the server itself ends TLS."""
        return self.ssl_self_signed or self.ssl_certfile is not None

    @model_validator(mode="after")
    def _check_certificate(self) -> "NetworkSettings":
        if self.ssl_self_signed and self.ssl_certfile is not None:
            raise ValueError("expected ssl_certfile or ssl_self_signed, got both; keep one of them")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("expected ssl_certfile with ssl_keyfile; name the certificate too")
        return self


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


class LogSettings(SettingsGroup):
    """What the server writes down, and where.

    Attributes:
        request_log: File for the request log: one JSON line for each context, without its text.
        log_json: Write logs as JSON lines instead of coloured text.
    """

    request_log: LogFile | None = None
    log_json: bool = False
