"""Settings: their sources, the storage of keys, and addresses that need keys."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from voiceagent_tts.cli.settings import read_settings
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.settings.access import hash_key

ONE, TWO = "the-key-of-one-caller", "the-key-of-another"


@pytest.fixture(autouse=True)
def clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory and environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", *(field.upper() for field in Settings.model_fields)):
        monkeypatch.delenv(f"VOICEAGENT_TTS_{name}", raising=False)


def test_arguments_come_before_the_environment_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voiceagent-tts.toml").write_text("port = 1\nmax_contexts = 1\nmax_sockets = 1\n")
    monkeypatch.setenv("VOICEAGENT_TTS_PORT", "2")
    monkeypatch.setenv("VOICEAGENT_TTS_MAX_CONTEXTS", "2")
    settings = Settings(port=3)
    assert (settings.port, settings.max_contexts, settings.max_sockets) == (3, 2, 1)
    assert settings.drain_s == 30.0


def test_the_environment_can_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`VOICEAGENT_TTS_CONFIG` is read instead of the file in the working directory."""
    (tmp_path / "voiceagent-tts.toml").write_text("port = 1\n")
    (tmp_path / "other.toml").write_text("max_contexts = 7\n")
    monkeypatch.setenv("VOICEAGENT_TTS_CONFIG", str(tmp_path / "other.toml"))
    assert (Settings().port, Settings().max_contexts) == (8765, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"),
        ("PORT", "http"),
        ("ENGINE", "no-such-engine"),
        ("MAX_CONTEXTS", "0"),
        ("ALIGNER", "perhaps"),
        ("ALIGNERS", "0"),
        ("MAX_LEAD_S", "0"),
        ("DRAIN_S", "-1"),
        ("DEVICE", "cuda:-1"),
        ("DEVICE", "gpu"),
        ("API_KEYS", ","),
        ("API_KEYS", "sha256:abc"),
        ("KEY_LIMITS", " , "),
        ("IP_LIMITS", "contexts"),
        ("WATCHDOG_S", "1e9"),
        ("WATCHDOG_S", "nan"),
        ("DRAIN_S", "inf"),
        ("GPU_MEMORY_GB", "1e300"),
        ("CACHE_MB", "inf"),
        ("MAX_SOCKETS", "1" + "0" * 30),
        ("REQUEST_LOG", "~nobody-of-that-name/log"),
        ("UPSTREAM", "http://"),
        ("DEVICE", "cuda:0,first"),
        ("WORKERS", "0"),
        ("WORKERS", "1000000000"),
        ("THREADS", "1000000000"),
        ("ALIGNERS", "1000000000"),
        ("ROWS", "1000000000"),
        ("LOG_JSON", "perhaps"),
        ("API_KEYS", "[1"),
        ("TRUSTED_PROXIES", "*,10.0.0.5"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"VOICEAGENT_TTS_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds on the command line and in the environment."""
    monkeypatch.setenv("VOICEAGENT_TTS_DEVICE", "cuda:2,cuda:3")
    assert Settings().device == ("cuda:2", "cuda:3")
    assert Settings.model_validate({"device": "cpu"}).device == ("cpu",)


@pytest.mark.parametrize("value", [f"{ONE}, {TWO}", f'["{ONE}", "{TWO}"]', f"{ONE},{TWO},"])
def test_keys_are_kept_as_hashes_only(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEYS", value)
    settings = Settings()
    assert settings.api_keys == (hash_key(ONE), hash_key(TWO))
    assert ONE not in repr(settings)


@pytest.mark.parametrize("value", ["short", f"{ONE},short", '["short"]', "change-me", "0" * 15])
def test_a_key_that_can_be_guessed_is_refused_with_what_to_write(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the environment, as an option and in the file; the key itself is not repeated."""
    with pytest.raises(ValidationError, match="openssl rand -hex 32"):
        Settings.model_validate({"api_keys": value})
    (tmp_path / "voiceagent-tts.toml").write_text('api_keys = ["short"]\n')
    with pytest.raises(ValidationError, match="at least 16 characters"):
        Settings()
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEYS", value)
    with pytest.raises(InvalidRequestError) as refused:
        read_settings({})
    assert "short" not in refused.value.message and value not in refused.value.message


_TEXTS = ("host", "voices_folder", "request_log", "device", "redis", "webhook_secret", "api_keys")


@pytest.mark.parametrize("name", _TEXTS)
@pytest.mark.parametrize("form", ["'{}'", '"{}"', "a{}\nb", "{}\x1b[2J", "\x00{}"])
def test_quotes_and_control_characters_are_refused(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server would start whose keys nobody can send, and make folders called `'`."""
    text = form.format("a-value-of-this-setting")
    with pytest.raises(ValidationError, match=f"{name}: expected"):
        Settings.model_validate({name: text})
    if "\0" not in text:
        monkeypatch.setenv(f"VOICEAGENT_TTS_{name.upper()}", text)
        with pytest.raises(InvalidRequestError, match=f"{name}: expected") as refused:
            read_settings({})
        assert "a-value" not in refused.value.message
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("value", [f"'{ONE}',{TWO}", f'["{ONE}\\n"]', "ключключключключ"])
def test_keys_that_no_client_can_send_are_refused(value: str) -> None:
    """Also those in a list."""
    with pytest.raises(ValidationError, match="api_keys"):
        Settings.model_validate({"api_keys": value})


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("host", " 127.0.0.1 ", "127.0.0.1"),
        ("voices_folder", "\tvoices\n", Path("voices")),
        ("api_keys", f" {ONE} ", (hash_key(ONE),)),
        ("port", " 1 ", 1),
    ],
)
def test_white_space_around_a_value_is_no_part_of_it(name: str, value: str, read: Any) -> None:
    """Of every setting."""
    assert getattr(Settings.model_validate({name: value}), name) == read


@pytest.mark.parametrize(
    "name",
    ["lexicon", "ssl_certfile", "watermark_key_file"],
)
def test_a_device_is_no_file(name: str, tmp_path: Path) -> None:
    """It would be read without an end; and a file of gigabytes is none that was meant."""
    with pytest.raises(ValidationError, match=f"(?s){name}.*expected a regular file"):
        Settings.model_validate({name: "/dev/zero"})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValidationError, match="expected a regular file"):
        Settings.model_validate({name: str(tmp_path / "pipe")})
    with (tmp_path / "large").open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(ValidationError, match="expected a file of at most 16777216 bytes"):
        Settings.model_validate({name: str(tmp_path / "large")})


def test_a_hash_stays_the_hash_that_it_is() -> None:
    """A file can contain hashes, so that it contains no key."""
    assert Settings(api_keys=(hash_key("one"),)).api_keys == (hash_key("one"),)
    assert hash_key("one") == (
        "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "tts.example.com"])
def test_an_open_door_is_refused(host: str) -> None:
    """An address that other machines can reach requires keys, or explicit permission."""
    with pytest.raises(ValidationError, match="VOICEAGENT_TTS_API_KEYS"):
        Settings(host=host)
    assert Settings(host=host, api_keys=("secret",)).host == host
    assert Settings(host=host, allow_anonymous=True).host == host


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_an_empty_value_is_the_default(
    name: str, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is one rule for every setting, in the environment, as an option and in the file."""
    default = Settings()
    monkeypatch.setenv(f"VOICEAGENT_TTS_{name.upper()}", empty)
    Path("voiceagent-tts.toml").write_text(f'{name} = "{empty}"\n')
    assert Settings() == default
    assert Settings.model_validate({name: empty}) == default


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("VOICEAGENT_TTS_ENIGNE", "VOICEAGENT_TTS_ENGINE"),
        ("VOICEAGENT_TTS_APIKEYS", "VOICEAGENT_TTS_API_KEYS"),
        ("VOICEAGENT_TTS_KEY", "VOICEAGENT_TTS_KEYS"),
        ("VOICEAGENT_API_KEYS", "VOICEAGENT_TTS_API_KEYS"),
        ("VOICE_AGENT_TTS_API_KEYS", "VOICEAGENT_TTS_API_KEYS"),
        ("VOICEAGENT_TTSAPI_KEYS", "VOICEAGENT_TTS_API_KEYS"),
        ("voiceagent_tts_api_keyz", "VOICEAGENT_TTS_API_KEYS"),
        ("VOICEAGENT_TTS_PORTS", "VOICEAGENT_TTS_PORT"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused_with_the_near_one(
    name: str, near: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typing error never starts a server without its keys or its limits."""
    monkeypatch.setenv(name, "")
    with pytest.raises(ValueError, match=f"{name} is no setting; did you mean {near}\\?"):
        Settings()


def test_a_variable_like_no_setting_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prefix is enough; variables of other programs are left alone."""
    monkeypatch.setenv("VOICEAGENT_DASHBOARD", "1")
    Settings()
    monkeypatch.setenv("VOICEAGENT_TTS_GRAPHS", "1")  # one that was
    with pytest.raises(ValueError, match="GRAPHS is no setting; docs/settings.md lists"):
        Settings()


SERVICE_LINKS = {
    "VOICEAGENT_TTS_SERVICE_HOST": "10.0.0.1",
    "VOICEAGENT_TTS_SERVICE_PORT": "80",
    "VOICEAGENT_TTS_SERVICE_PORT_HTTP": "80",
    "VOICEAGENT_TTS_PORT": "tcp://10.0.0.1:80",
    "VOICEAGENT_TTS_PORT_80_TCP": "tcp://10.0.0.1:80",
    "VOICEAGENT_TTS_PORT_80_TCP_PROTO": "tcp",
    "VOICEAGENT_TTS_PORT_80_TCP_PORT": "80",
    "VOICEAGENT_TTS_PORT_80_TCP_ADDR": "10.0.0.1",
    "VOICEAGENT_TTS_REDIS_PORT": "tcp://10.0.0.2:6379",
    "VOICEAGENT_TTS_REDIS_SERVICE_HOST": "10.0.0.2",
}
"""What Kubernetes tells pods about services called `voiceagent-tts` and `voiceagent-tts-redis`."""


def test_what_kubernetes_sets_for_services_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release may be called voiceagent-tts; the port stays the default or the file's."""
    Path("voiceagent-tts.toml").write_text("max_sockets = 7\n")
    for name, value in SERVICE_LINKS.items():
        monkeypatch.setenv(name, value)
    assert (Settings().port, Settings().max_sockets, Settings().redis) == (8765, 7, None)
    monkeypatch.setenv("VOICEAGENT_TTS_PORT", "http://10.0.0.1")
    with pytest.raises(ValidationError, match="port"):
        Settings()


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("example.com", "https://example.com"),
        ("https://example.com/", "https://example.com"),
        ("https://example.com/app", "https://example.com"),
        ("https://Example.com", "https://example.com"),
        ("https://example.com:443", "https://example.com"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("*", "such as https://example.com"),
        ("https://", "such as https://example.com"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(given: str, written: str) -> None:
    """The sentence says what to write instead."""
    with pytest.raises(ValidationError, match=re.escape(written)):
        Settings(allowed_origins=(given,))


def test_origins_as_browsers_send_them_are_accepted() -> None:
    """Ports, addresses, and pages that are part of a program."""
    origins = ("http://localhost:5173", "http://[::1]:3000", "chrome-extension://abc", "http://a_b")
    assert Settings(allowed_origins=origins).allowed_origins == origins


@pytest.mark.parametrize(
    ("given", "written"), [("10.0.0.5/24", "10.0.0.0/24"), ("proxy", "such as 10.0.0.0/8")]
)
def test_a_proxy_that_is_no_network_is_refused_with_what_to_write(given: str, written: str) -> None:
    """Uvicorn would ignore it without a word."""
    with pytest.raises(ValidationError, match=written):
        Settings(trusted_proxies=(given,))


def test_an_empty_variable_takes_away_the_keys_of_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of one's own beside one in production needs no key."""
    (tmp_path / "voiceagent-tts.toml").write_text('keys = "keys.json"\n')
    monkeypatch.chdir(tmp_path)
    assert Settings().needs_key
    monkeypatch.setenv("VOICEAGENT_TTS_KEYS", "")
    assert not Settings().needs_key


@pytest.mark.parametrize(
    "values",
    [
        {"engine": "openai", "upstream": "wss://host/realtime"},
        {
            "engine": "openai",
            "upstream": "http://host/v1",
            "overflow": True,
            "upstream_chars_per_day": 9,
        },
        {"upstream": "ftp://host"},
        {"engine": "openai", "upstream": "http://host/v1", "upstream_fields": '{"a": NaN}'},
    ],
)
def test_an_upstream_that_does_not_fit_is_refused(values: dict[str, Any]) -> None:
    """An address of another protocol, and a burst to the engine itself."""
    with pytest.raises(ValidationError):
        Settings.model_validate(values)
