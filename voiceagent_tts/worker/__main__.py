"""`python -m voiceagent_tts.worker KIND ENDPOINT`: host an engine or aligner for the server."""

import argparse
import gc
import json
from collections.abc import Callable
from typing import Any

from voiceagent_tts.hooks import plugin_modules
from voiceagent_tts.worker import host

Make = Callable[[dict[str, Any]], host.MakeEngine]


def _espeak(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.espeak.engine import EspeakEngine

    return lambda inbox, outbox: EspeakEngine(inbox, outbox, **options)


def _qwen3(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.engine.ladder import load_lower
    from voiceagent_tts.engine.load import load_engine
    from voiceagent_tts.engine.options import Qwen3Options

    wanted = Qwen3Options(**options)
    return lambda inbox, outbox: load_lower(
        wanted, lambda allowed: load_engine(allowed, inbox, outbox)
    )


def _pocket(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.pocket.load import PocketOptions, load_pocket

    loading = PocketOptions(**options)
    return lambda inbox, outbox: load_pocket(loading, inbox, outbox)


def _hibari(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.hibari.load import HibariOptions, load_hibari

    loading = HibariOptions(**options)
    return lambda inbox, outbox: load_hibari(loading, inbox, outbox)


def _kokoro(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.kokoro.load import KokoroOptions, load_kokoro

    loading = KokoroOptions(**options)
    return lambda inbox, outbox: load_kokoro(loading, inbox, outbox)


def _online(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.aligner.online.aligner import OnlineAligner
    from voiceagent_tts.aligner.sessions import OnlineSessions

    return lambda inbox, outbox: OnlineSessions(inbox, outbox, OnlineAligner(**options))


KINDS: dict[str, Make] = {
    "espeak": _espeak,
    "hibari": _hibari,
    "kokoro": _kokoro,
    "pocket": _pocket,
    "qwen3": _qwen3,
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
