"""HTTP servers of tests: each answers on a thread of its own, until its block ends in any way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import TypeVar

Server = TypeVar("Server", bound=HTTPServer)
THREAD = "(serve_forever)"
"""How the names of their threads end. One whose socket was closed would compute without end."""
_POLL_S = 0.01


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted to it.

    Attributes:
        url: its address.
        got: path, headers and body of each request.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiving)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.got: list[tuple[str, dict[str, str], bytes]] = []

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the next answer."""
        raise NotImplementedError


class _Receiving(Handler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        receiver.got.append((self.path, dict(self.headers), self._read_body()))
        status, headers, body = receiver.answer()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _read_body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))


@contextmanager
def answering(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def server_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.endswith(THREAD)}
