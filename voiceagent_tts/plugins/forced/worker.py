"""The process of the forced aligner."""

from typing import Any

from voiceagent_tts.seam.engine_kind import MakeEngine


def _forced(options: dict[str, Any]) -> MakeEngine:
    from voiceagent_tts.plugins.forced.load import ForcedOptions, load_forced

    loading = ForcedOptions(**options)
    return lambda inbox, outbox: load_forced(loading, inbox, outbox)


KINDS = {"forced": _forced}
