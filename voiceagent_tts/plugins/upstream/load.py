"""Connects to an upstream, and lists its voices."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from voiceagent_tts.plugins.upstream import UPSTREAM_KEY
from voiceagent_tts.plugins.upstream.engine import CharBudget, UpstreamEngine
from voiceagent_tts.plugins.upstream.requests import Upstream
from voiceagent_tts.plugins.upstream.speech_api import SpeechAPI
from voiceagent_tts.plugins.upstream.speech_http import OpenAISpeech
from voiceagent_tts.seam.engine import Inbox, Outbox

_MAX_ROWS = 16


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """Settings of an engine; the API key comes from the environment.

    Attributes:
        url: address of the API, such as `http://127.0.0.1:8880/v1`.
        voices: names of the voices, the default first; empty to ask the upstream.
        rows: contexts, and so requests, at the same time. Default: 16.
        chars_per_day: characters that may be sent within 24 hours; None for no limit.
    """

    url: str
    model: str
    voices: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeout_s: float = 10.0
    rows: int | None = None
    chars_per_day: int | None = None


def load_upstream(options: UpstreamOptions, inbox: Inbox, outbox: Outbox) -> UpstreamEngine:
    """Connect to the upstream, which lists its voices unless the settings do.

    Raises:
        EngineError: it cannot be reached, or refuses the key.
    """
    max_rows = options.rows or _MAX_ROWS
    api = SpeechAPI(options.url.rstrip("/"), options.model, options.fields)
    key = os.environ.get(UPSTREAM_KEY) or None
    service = OpenAISpeech(api, key, timeout_s=options.timeout_s, max_requests=max_rows)
    upstream = Upstream(service)
    try:
        voices = list(options.voices) or upstream.voices()
    except BaseException:
        upstream.close()
        raise
    budget = CharBudget(options.chars_per_day)
    return UpstreamEngine(
        inbox, outbox, upstream, service, voices, max_rows=max_rows, budget=budget
    )
