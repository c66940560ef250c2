"""`python -m voiceagent_tts.worker KIND ENDPOINT`: host an engine or aligner for the server."""

import argparse
import gc
import json
from collections.abc import Callable
from typing import Any

from voiceagent_tts.hooks import plugin_modules
from voiceagent_tts.seam.engine_kind import MakeEngine, engine_kinds
from voiceagent_tts.worker import host

Make = Callable[[dict[str, Any]], MakeEngine]


def _online(options: dict[str, Any]) -> MakeEngine:
    from voiceagent_tts.aligner.online.aligner import OnlineAligner, OnlineSessions

    return lambda inbox, outbox: OnlineSessions(inbox, outbox, OnlineAligner(**options))


KINDS: dict[str, Make] = {
    **{name: kind.make for name, kind in engine_kinds().items()},
    "online": _online,
}


def main() -> int:
    """Host one engine or aligner until the parent process ends."""
    kinds = dict(KINDS)
    for plugin in plugin_modules("worker"):
        kinds |= plugin.KINDS
    parser = argparse.ArgumentParser(prog="python -m voiceagent_tts.worker", description=__doc__)
    parser.add_argument("kind", choices=sorted(kinds))
    parser.add_argument("endpoint", help="address on which the parent listens: ipc://PATH")
    parser.add_argument("--options", type=json.loads, default={}, help="its options, as JSON")
    arguments = parser.parse_args()
    gc.disable()  # as in `garbage.without_collection`; `host` enables it when the engine has loaded
    return host.run(arguments.endpoint, kinds[arguments.kind](arguments.options))


if __name__ == "__main__":
    raise SystemExit(main())
