"""The certificate of a server that speaks HTTPS and WSS itself: given, or self-signed.

A self-signed certificate is kept and used again, so that browsers ask only once whether to accept
it. A certificate whose files change is read again, so that a renewed one needs no restart.
"""

import asyncio
import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
from asyncio import constants, sslproto
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from voiceagent_tts.clones import file_version
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.settings.network import NetworkSettings

if TYPE_CHECKING:
    from cryptography import x509

SELF_SIGNED = Path("~/.local/share/voiceagent-tts/self-signed.pem")
"""Key and certificate in one file."""

HANDSHAKE_S = 10.0
"""Time for a TLS handshake; asyncio's 60 s let silent clients occupy six times as many files."""
READ_BYTES = 16 * 1024
"""Bytes of a TLS connection that are read in one iteration of the event loop: about one record.
asyncio would allocate 16 times as much for each, also before a client has sent anything."""
_RELOAD_S = 10.0
_VALID = datetime.timedelta(days=397)  # browsers refuse certificates that are valid for longer
_RENEWED = datetime.timedelta(days=30)
"""A certificate with less time left is replaced."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files of a certificate in PEM form; the key may be in the first."""

    certfile: Path
    keyfile: Path | None = None

    @property
    def version(self) -> list[tuple[int, ...]]:
        """A value that changes whenever a file is replaced."""
        files = (self.certfile, self.keyfile)
        return [file_version(path.stat()) for path in files if path is not None]

    @contextlib.asynccontextmanager
    async def kept_current(
        self, context: ssl.SSLContext, interval_s: float = _RELOAD_S
    ) -> AsyncIterator[None]:
        """Read the certificate again, within the block, whenever its files have changed.

        Open connections keep theirs. A file that cannot be used, such as one half written, is
        logged and tried again; until then new connections get the last good certificate. Clients
        have `HANDSHAKE_S` for their handshake.
        """
        _limit_connections()
        watching = asyncio.create_task(_reload(self, context, interval_s))
        try:
            yield
        finally:
            watching.cancel()


class _Connection(sslproto.SSLProtocol):
    """asyncio's TLS connection; one whose handshake fails is freed at once.

    The error of a failed handshake leads to the frames that it passed, which lead to the connection
    and back to the error: 70 kB of each wait for a full collection, which is rare.
    """

    max_size = READ_BYTES

    def _wakeup_waiter(self, exc: BaseException | None = None) -> None:
        """End the wait for a handshake; a failure has closed the connection, and is not raised."""
        if exc is None or not self._server_side:
            super()._wakeup_waiter(exc)
            return
        exc.__traceback__ = None
        super()._wakeup_waiter()


def certificate_of(settings: NetworkSettings) -> Certificate | None:
    """Return the certificate that the settings ask for; None for a server without TLS.

    Raises:
        InvalidRequestError: a file cannot be read or written, or is no certificate with its key.
    """
    if settings.ssl_self_signed:
        certificate = Certificate(_self_signed(settings, SELF_SIGNED.expanduser()))
    elif settings.ssl_certfile is not None:
        certificate = Certificate(settings.ssl_certfile, settings.ssl_keyfile)
    else:
        return None
    try:
        _load(certificate, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or "no certificate and key in PEM form"
        raise InvalidRequestError(
            f"ssl_certfile {certificate.certfile}: expected a certificate with its key in PEM "
            f"form, got an error ({reason}); the key may be in ssl_keyfile",
            code=ErrorCode.INVALID_PARAM,
        ) from error
    return certificate


def _load(certificate: Certificate, context: ssl.SSLContext) -> None:
    context.load_cert_chain(certificate.certfile, certificate.keyfile)


def _limit_connections() -> None:
    """Limit the handshakes of this process to `HANDSHAKE_S`, and its reads to `READ_BYTES`.

    uvicorn passes no limit on to asyncio.
    """
    setattr(constants, "SSL_HANDSHAKE_TIMEOUT", HANDSHAKE_S)  # noqa: B010 - typed as final
    setattr(sslproto, "SSLProtocol", _Connection)  # noqa: B010 - typed as a class


async def _reload(certificate: Certificate, context: ssl.SSLContext, interval_s: float) -> None:
    loaded, problem = certificate.version, None
    while True:
        await asyncio.sleep(interval_s)
        try:
            if (version := certificate.version) == loaded:
                continue
            # First into another context: a key that does not match would leave this one unusable.
            _load(certificate, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            _load(certificate, context)
        except OSError as error:
            if problem != (problem := str(error)):
                _log.error("certificate_not_reloaded", problem=error.strerror or problem)
            continue
        loaded, problem = version, None
        _log.info("certificate_reloaded", certfile=str(certificate.certfile))


def _self_signed(settings: NetworkSettings, path: Path) -> Path:
    names = _names(settings)
    if not _is_current(path, names):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_private(path, _generate(names))
        except OSError as error:
            raise InvalidRequestError(
                f"ssl_self_signed: {path} cannot be written ({error.strerror}); use --ssl-certfile "
                "and --ssl-keyfile"
            ) from error
    return path


def _names(settings: NetworkSettings) -> list[str]:
    """Names and addresses under which browsers may open the server, sorted."""
    return sorted({"localhost", "127.0.0.1", "::1", socket.gethostname(), settings.host})


def _is_current(path: Path, names: list[str]) -> bool:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return False
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    known = sorted(str(name.value) for name in extension.value)
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return known == names and left > _RENEWED


def _generate(names: list[str]) -> bytes:
    """Make a key and a certificate for it, in PEM form."""
    # Imported here: few servers terminate TLS themselves.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "voiceagent-tts")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # for clients whose clocks are slow
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_private(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
