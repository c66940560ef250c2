"""HTTPS and WSS without a proxy: with a certificate of one's own, or a self-signed one."""

import asyncio
import functools
import gc
import ssl
import tracemalloc
from asyncio import constants
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from testbed.servers import StartServer
from testbed.waiting import until
from testbed.wire import Wire
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.tls import certificates as tls
from voiceagent_tts.plugins.tls.certificates import Certificate, certificate_of
from voiceagent_tts.server.serve import RunningServer

_SILENT = 20


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of this test, in which the server keeps its certificate."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


async def test_a_self_signed_server_speaks(start_server: StartServer, home: Path) -> None:
    """A client that trusts the certificate reaches the page and a context."""
    server = await start_server(ssl_self_signed=True)
    assert server.url.startswith("https://127.0.0.1:")
    (certificate,) = home.rglob("self-signed.pem")
    trusting = ssl.create_default_context(cafile=certificate)
    async with httpx.AsyncClient(verify=trusting) as http:
        assert (await http.get(server.url)).status_code == 200
    async with Wire.connected(server.websocket_url, ssl=trusting) as wire:
        assert (await wire.say("Hello.")).done.reason == "complete"


def test_a_self_signed_certificate_is_kept(home: Path) -> None:
    """The next start uses it again; another address, and a damaged file, give another one."""
    settings = Settings(ssl_self_signed=True)
    first = certificate_of(settings)
    assert first is not None
    assert first.certfile.stat().st_mode & 0o077 == 0
    kept = first.certfile.read_bytes()
    assert certificate_of(settings) == first and first.certfile.read_bytes() == kept
    certificate_of(Settings(ssl_self_signed=True, host="tts.test", allow_anonymous=True))
    assert (other := first.certfile.read_bytes()) != kept
    first.certfile.write_text("damaged")
    certificate_of(settings)
    assert first.certfile.read_bytes() not in (kept, other, b"damaged")


def test_ones_own_certificate_is_served_from_its_files(home: Path) -> None:
    """The key may be in the certificate's file, or in another one."""
    made = certificate_of(Settings(ssl_self_signed=True))
    assert made is not None
    key, _, rest = made.certfile.read_text().partition("-----BEGIN CERTIFICATE-----")
    (home / "key.pem").write_text(key)
    (home / "cert.pem").write_text(f"-----BEGIN CERTIFICATE-----{rest}")
    settings = Settings(ssl_certfile=home / "cert.pem", ssl_keyfile=home / "key.pem")
    assert certificate_of(settings) is not None
    with pytest.raises(InvalidRequestError, match="expected a certificate with its key"):
        certificate_of(Settings(ssl_certfile=home / "cert.pem"))
    with pytest.raises(ValidationError, match="ssl_certfile(?s:.*)No such file"):
        Settings(ssl_certfile=home / "missing.pem")


async def test_a_renewed_certificate_is_served_without_a_restart(
    start_server: StartServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that change are read again; a broken one changes nothing, and is logged once."""
    often = functools.partialmethod(Certificate.kept_current, interval_s=0.005)
    monkeypatch.setattr(Certificate, "kept_current", often)
    server = await start_server(ssl_self_signed=True)
    (file,) = home.rglob("self-signed.pem")
    first = file.read_text()

    def events() -> list[str]:
        return [line["event"] for line in logs if line["event"].startswith("certificate_")]

    with capture_logs() as logs:
        file.write_text(first[:300])
        await until(lambda: bool(events()), "the broken file is noticed")
        assert await shown_by(server) in first
        assert events() == ["certificate_not_reloaded"]
        certificate_of(Settings(ssl_self_signed=True))
        await until(lambda: "certificate_reloaded" in events(), "the renewed file is noticed")
    shown = await shown_by(server)
    assert shown in file.read_text() and shown not in first


async def shown_by(server: RunningServer) -> str:
    """The certificate of new connections."""
    host, port = server.url.removeprefix("https://").split(":")
    return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))


async def test_a_client_without_a_handshake_is_disconnected(
    start_server: StartServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent client does not occupy a file for long."""
    monkeypatch.setattr(constants, "SSL_HANDSHAKE_TIMEOUT", constants.SSL_HANDSHAKE_TIMEOUT)
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.05)
    server = await start_server(ssl_self_signed=True)
    reader, writer = await asyncio.open_connection(*server.url.removeprefix("https://").split(":"))
    assert await reader.read() == b""
    writer.close()


async def test_a_client_without_a_handshake_costs_little_memory(
    start_server: StartServer, home: Path
) -> None:
    """No key is needed to connect: each silent connection had a buffer of 256 KiB."""
    server = await start_server(ssl_self_signed=True)
    address = server.url.removeprefix("https://").split(":")
    writers = [(await asyncio.open_connection(*address))[1]]  # what is made once
    state = server.uvicorn_server.server_state
    await until(lambda: _buffers() > 0, "it is accepted")
    made, before = len(state.connections), _buffers()
    tracemalloc.start()
    try:
        for _ in range(_SILENT):
            writers.append((await asyncio.open_connection(*address))[1])
        await until(lambda: _buffers() >= before + _SILENT, "all are accepted")
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(state.connections) == made
    for writer in writers:
        writer.close()
    assert size_bytes < 40 * 1024 * _SILENT


def _buffers() -> int:
    """TLS connections of this process."""
    return sum(issubclass(type(each), SSLProtocol) for each in gc.get_objects())


async def test_a_failed_handshake_leaves_nothing_for_the_garbage_collector(
    start_server: StartServer, home: Path
) -> None:
    """Neither silence, nor what is no TLS, nor half of it: full collections are rare."""
    server = await start_server(ssl_self_signed=True)
    address = server.url.removeprefix("https://").split(":")
    gc.collect()
    before = _buffers()
    gc.disable()
    try:
        for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"):
            for _ in range(_SILENT):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(sent)
                writer.write_eof()
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()
            await until(lambda: _buffers() <= before, f"all are freed that sent {sent}")
    finally:
        gc.enable()


def test_contradictory_settings_are_refused(tmp_path: Path) -> None:
    """One certificate, and never a key alone."""
    (tmp_path / "a.pem").touch()
    with pytest.raises(ValueError, match="got both"):
        Settings(ssl_certfile=tmp_path / "a.pem", ssl_self_signed=True)
    with pytest.raises(ValueError, match="name the certificate too"):
        Settings(ssl_keyfile=tmp_path / "a.pem")
