"""`python -m voiceagent_tts.worker ENGINE ENDPOINT`: one engine process, started by the server."""

import argparse
import json
from typing import Any

from voiceagent_tts.worker import host
from voiceagent_tts.worker.throttled import Throttle, Throttled


def _espeak(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.espeak.engine import EspeakEngine

    return lambda inbox, outbox: EspeakEngine(inbox, outbox, **options)


def _qwen3(options: dict[str, Any]) -> host.MakeEngine:
    from voiceagent_tts.engine.load import Qwen3Options, load_engine

    loading = Qwen3Options(**options)
    return lambda inbox, outbox: load_engine(loading, inbox, outbox)


_ENGINES = {"espeak": _espeak, "qwen3": _qwen3}


def main() -> int:
    """Host one engine until the parent goes."""
    parser = argparse.ArgumentParser(prog="python -m voiceagent_tts.worker", description=__doc__)
    parser.add_argument("engine", choices=sorted(_ENGINES))
    parser.add_argument("endpoint", help="where the parent listens: ipc://PATH")
    parser.add_argument("--options", type=json.loads, default={}, help="for the engine, as JSON")
    parser.add_argument("--throttle", type=json.loads, help="fields of Throttle, as JSON")
    arguments = parser.parse_args()
    make_engine = _ENGINES[arguments.engine](arguments.options)
    if arguments.throttle is not None:
        make_engine = _throttled(make_engine, Throttle(**arguments.throttle))
    return host.run(arguments.endpoint, make_engine)


def _throttled(make_inner: host.MakeEngine, throttle: Throttle) -> host.MakeEngine:
    return lambda inbox, outbox: Throttled(make_inner, inbox, outbox, throttle)


if __name__ == "__main__":
    raise SystemExit(main())
