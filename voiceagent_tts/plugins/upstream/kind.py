"""The kind of engine whose voices are those of another server."""

import importlib
from typing import TYPE_CHECKING, Any

from voiceagent_tts.plugins.upstream import UPSTREAM_KEY
from voiceagent_tts.seam.engine_kind import EngineKind, MakeEngine, WorkerSpec

if TYPE_CHECKING:
    from voiceagent_tts.config import Settings


class UpstreamKind(EngineKind):
    """Has one worker; also for the contexts that another engine has no row for."""

    name = "openai"
    metrics = {
        "upstream_requests_total": "Requests sent to the upstream.",
        "upstream_retries_total": "Requests repeated because they had failed before any audio.",
        "upstream_failures_total": "Texts that the upstream did not speak.",
        "upstream_chars_total": "Characters sent to the upstream.",
    }

    def worker_specs(self, settings: "Settings") -> dict[str, WorkerSpec]:
        """Return the one worker; the setting `rows` is that of another engine it stands in for."""
        key = settings.upstream_key
        spec = WorkerSpec(
            self.name,
            {
                "url": settings.upstream,
                "model": settings.upstream_model,
                "voices": settings.upstream_voices,
                "fields": settings.upstream_fields or {},
                "rows": settings.rows if settings.engine == self.name else None,
                "chars_per_day": settings.upstream_chars_per_day,
            },
            # Not among the options, which every user of the machine can read.
            environment={UPSTREAM_KEY: "" if key is None else key.get_secret_value()},
        )
        return {self.name: spec}

    def make(self, options: dict[str, Any]) -> MakeEngine:
        """Return what makes the engine."""
        from voiceagent_tts.plugins.upstream.load import UpstreamOptions, load_upstream

        loading = UpstreamOptions(**options)
        return lambda inbox, outbox: load_upstream(loading, inbox, outbox)

    def fetch(self, settings: "Settings") -> "Settings":
        """Check for the package that it needs here, where its absence is explained."""
        importlib.import_module("httpx")
        return settings


KIND = UpstreamKind()
