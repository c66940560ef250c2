"""TCP ports for programs that must be told one."""

import contextlib
import random
import socket

_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to whoever asks for any port, as servers of other tests do."""


def free_ports(count: int) -> list[int]:
    """Return different ports that nothing uses; nothing takes one before its program listens."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            # Property tests seed the usual random numbers, in every process alike.
            port = random.SystemRandom().choice(_PORTS)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports
