"""The engine whose voices are those of another server."""

from typing import Any

from voiceagent_tts.worker import host


def _openai(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.plugins.upstream.load import UpstreamOptions, load_upstream

    loading = UpstreamOptions(**options)
    return lambda inbox, outbox: load_upstream(loading, inbox, outbox)


KINDS = {"openai": _openai}
