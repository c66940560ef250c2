"""`python -m voiceagent_tts.worker ENGINE ENDPOINT`: one engine process, started by the server."""

import argparse
import json

from voiceagent_tts.core import Engine, Inbox, Outbox
from voiceagent_tts.worker import host
from voiceagent_tts.worker.throttled import Throttle, Throttled


def _make_espeak(inbox: Inbox, outbox: Outbox) -> Engine:
    from voiceagent_tts.espeak.engine import EspeakEngine

    return EspeakEngine(inbox, outbox)


_ENGINES: dict[str, host.MakeEngine] = {"espeak": _make_espeak}


def main() -> int:
    """Host one engine until the parent goes."""
    parser = argparse.ArgumentParser(prog="python -m voiceagent_tts.worker", description=__doc__)
    parser.add_argument("engine", choices=sorted(_ENGINES))
    parser.add_argument("endpoint", help="where the parent listens: ipc://PATH")
    parser.add_argument("--throttle", type=json.loads, help="fields of Throttle, as JSON")
    arguments = parser.parse_args()
    make_engine = _ENGINES[arguments.engine]
    if arguments.throttle is not None:
        make_engine = _throttled(make_engine, Throttle(**arguments.throttle))
    return host.run(arguments.endpoint, make_engine)


def _throttled(make_inner: host.MakeEngine, throttle: Throttle) -> host.MakeEngine:
    return lambda inbox, outbox: Throttled(make_inner, inbox, outbox, throttle)


if __name__ == "__main__":
    raise SystemExit(main())
