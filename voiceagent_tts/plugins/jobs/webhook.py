"""Sends news to an address that a client has named, and does not let it reach this network.

The name is resolved once, every address of it must be public, and the connection goes to that
address; redirects are not followed. The message is signed as https://www.standardwebhooks.com
describes, so that the receiver can tell it from others.
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from urllib.parse import SplitResult, urlsplit

from voiceagent_tts.errors import ErrorCode, InvalidRequestError

TIMEOUT_S = 10.0
_MAX_URL_CHARS = 2048
_MAX_LABEL_CHARS = 63  # of DNS
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_NEVER_PUBLIC = (
    ipaddress.IPv4Network("192.0.0.0/24"),  # RFC 6890; a cloud has its metadata at 192.0.0.192
    ipaddress.IPv6Network("64:ff9b:1::/48"),  # NAT64 of one network: RFC 8215
    ipaddress.IPv6Network("::/96"),  # IPv4 in its form before RFC 4291, 2.5.5.1
    ipaddress.IPv6Network("fec0::/10"),  # site-local: RFC 3879
)


class NotDeliveredError(Exception):
    """The receiver could not be reached, or did not answer with a status of success."""


@dataclass(frozen=True, slots=True, repr=False)
class Webhooks:
    """Sends signed messages.

    Attributes:
        secret: signs the messages; receivers need it.
        allows_private: whether http and addresses of private networks are allowed.
    """

    secret: bytes
    allows_private: bool = False

    def of_key(self, key_id: str | None) -> "Webhooks":
        """Those of a key, with a secret of its own: no other key can have news sent with it."""
        if key_id is None:
            return self
        return replace(self, secret=hmac.digest(self.secret, key_id.encode(), "sha256"))

    @property
    def shown_secret(self) -> str:
        """The secret as receivers write it.

        Source: Standard Webhooks 1.0.0, "Signature scheme".
        """
        return f"whsec_{base64.b64encode(self.secret).decode()}"

    def check(self, url: str) -> None:
        """Check an address before a job is accepted for it; resolves no name.

        Raises:
            InvalidRequestError: it is no address that messages may be sent to.
        """
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise _refused("an address that can be read") from None
        if len(url) > _MAX_URL_CHARS or not url.isascii() or any(c <= " " for c in url):
            raise _refused(f"at most {_MAX_URL_CHARS} printable ASCII characters")
        if not host or "@" in parts.netloc or parts.scheme not in self._schemes:
            raise _refused(f"{' or '.join(self._schemes)}://HOST/..., without a user")
        if not all(0 < len(label) <= _MAX_LABEL_CHARS for label in host.rstrip(".").split(".")):
            raise _refused("the name of a host")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return
        if not self._is_allowed(address):
            raise _refused("a public address")

    def send(self, url: str, message_id: str, body: bytes, now_s: int) -> None:
        """Send one message; blocks, for at most `TIMEOUT_S`.

        Raises:
            NotDeliveredError: the message was not accepted.
        """
        parts = urlsplit(url)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "voiceagent-tts",
            "webhook-id": message_id,
            "webhook-timestamp": str(now_s),
            "webhook-signature": self.signature(message_id, body, now_s),
        }
        path = parts.path or "/"
        target = f"{path}?{parts.query}" if parts.query else path
        ends_at = time.monotonic() + TIMEOUT_S
        try:
            with self._connect(parts, ends_at) as raw, _deadline(raw, _left_s(ends_at)):
                connection = _http_over(raw, parts)
                with contextlib.closing(connection):
                    connection.request("POST", target, body, headers)
                    status = connection.getresponse().status
        except (OSError, ValueError, http.client.HTTPException) as error:
            # A ValueError is a name that cannot be looked up.
            raise NotDeliveredError(type(error).__name__) from error
        if not 200 <= status < 300:
            raise NotDeliveredError(f"status {status}")

    def signature(self, message_id: str, body: bytes, now_s: int) -> str:
        """The value of `webhook-signature`.

        Source: Standard Webhooks 1.0.0, "Signature scheme".
        """
        signed = f"{message_id}.{now_s}.".encode() + body
        digest = hmac.new(self.secret, signed, hashlib.sha256).digest()
        return f"v1,{base64.b64encode(digest).decode()}"

    @property
    def _schemes(self) -> tuple[str, ...]:
        return ("https", "http") if self.allows_private else ("https",)

    def _connect(self, parts: SplitResult, ends_at: float) -> socket.socket:
        """Connect to an address that was checked, and not to a name that may change meanwhile."""
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        addresses = _addresses_of(host, port, _left_s(ends_at))
        for address in addresses:
            if not self._is_allowed(ipaddress.ip_address(address.partition("%")[0])):
                raise NotDeliveredError("the name has an address of a private network")
        return socket.create_connection((addresses[0], port), _left_s(ends_at))

    def _is_allowed(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        inner = _ipv4_within(address) if isinstance(address, ipaddress.IPv6Address) else None
        is_public = (inner or address).is_global and not address.is_multicast
        is_public = is_public and not any(
            each in network for each in (address, inner or address) for network in _NEVER_PUBLIC
        )
        return is_public or self.allows_private


def _left_s(ends_at: float) -> float:
    """Seconds until a moment of `time.monotonic`."""
    left_s = ends_at - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _addresses_of(host: str, port: int, timeout_s: float) -> list[str]:
    """Resolve a name in a thread of its own, which ends when the resolver gives up."""
    answer: Future[list[str]] = Future()

    def resolve() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            answer.set_exception(error)
        else:
            answer.set_result([str(each[4][0]) for each in found])

    threading.Thread(target=resolve, name="webhook-name", daemon=True).start()
    return answer.result(timeout_s)


def _ipv4_within(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to, by a gateway; None for one of its own."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


def _http_over(raw: socket.socket, parts: SplitResult) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
    connection.sock = raw
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection.sock = context.wrap_socket(raw, server_hostname=parts.hostname)
    return connection


@contextlib.contextmanager
def _deadline(raw: socket.socket, remaining_s: float) -> Iterator[None]:
    """Cut a connection after `remaining_s`.

    The timeout of a socket is that of one read: a receiver that sends a byte now and then would
    occupy the thread for hours.
    """
    is_cut = threading.Event()
    twin = raw.dup()  # TLS takes `raw` itself

    def cut() -> None:
        is_cut.set()
        with contextlib.suppress(OSError):  # the receiver has closed it meanwhile
            twin.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(remaining_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        twin.close()
    if is_cut.is_set():  # a cut answer may look complete
        raise TimeoutError


def _refused(expected: str) -> InvalidRequestError:
    return InvalidRequestError(f"webhook: expected {expected}", code=ErrorCode.INVALID_PARAM)
