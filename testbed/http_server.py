"""HTTP servers of tests: each answers on a thread of its own, until its block ends in any way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TypeVar

Server = TypeVar("Server", bound=HTTPServer)
THREAD = "(serve_forever)"
"""How the names of their threads end. One whose socket was closed would compute without end."""
_POLL_S = 0.01


class Handler(BaseHTTPRequestHandler):
    """Prints nothing for each request."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def read_body(self) -> bytes:
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
