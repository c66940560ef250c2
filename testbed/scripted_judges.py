"""An HTTP server that answers by a script, as recognisers and judges of speech do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.http_server import Receiver, answering


class ScriptedJudge(Receiver):
    """Answers in the order of `answers`: bodies, of which an empty one is sent with status 500."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[bytes] = []

    @property
    def requests(self) -> list[tuple[str, str | None, bytes]]:
        """Path, authorization and body of each request."""
        return [(path, headers.get("Authorization"), body) for path, headers, body in self.got]

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        body = self.answers.pop(0)
        return (200 if body else 500), {"Content-Length": str(len(body))}, body


@contextmanager
def scripted_judge() -> Iterator[ScriptedJudge]:
    with answering(ScriptedJudge()) as server:
        yield server


def heard(text: str) -> bytes:
    return json.dumps({"text": text}).encode()
