"""The process of the forced aligner."""

from functools import partial
from typing import Any

from voiceagent_tts.seam.engine_kind import MakeEngine


def _forced(options: dict[str, Any]) -> MakeEngine:
    from voiceagent_tts.plugins.forced.load import load_forced

    return partial(load_forced, **options)


KINDS = {"forced": _forced}
