"""An HTTP server that answers by a script, as recognisers and judges of speech do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from testbed.http_server import Handler, answering


class ScriptedJudge(ThreadingHTTPServer):
    """Answers POST requests in the order of `answers`, and keeps the requests.

    Attributes:
        answers: bodies; an empty one is sent with status 500.
        requests: (path, authorization, body) of each request.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[bytes] = []
        self.requests: list[tuple[str, str | None, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(Handler):
    def do_POST(self) -> None:
        judge = self.server
        assert isinstance(judge, ScriptedJudge)
        body = self.read_body()
        judge.requests.append((self.path, self.headers["Authorization"], body))
        answer = judge.answers.pop(0)
        self.send_response(200 if answer else 500)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@contextmanager
def scripted_judge() -> Iterator[ScriptedJudge]:
    with answering(ScriptedJudge()) as server:
        yield server


def heard(text: str) -> bytes:
    return json.dumps({"text": text}).encode()
