"""Settings: their sources, the storage of keys, and addresses that need keys."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from voiceagent_tts.config import Settings
from voiceagent_tts.settings.access import hash_key


@pytest.fixture(autouse=True)
def clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory and environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", *(field.upper() for field in Settings.model_fields)):
        monkeypatch.delenv(f"VOICEAGENT_TTS_{name}", raising=False)


def test_arguments_come_before_the_environment_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments take precedence over the environment, and the environment over the file."""
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


def test_a_named_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong path must not start a server with defaults."""
    monkeypatch.setenv("VOICEAGENT_TTS_CONFIG", "no-such.toml")
    with pytest.raises(ValueError, match=r"there is no file 'no-such\.toml'"):
        Settings()


def test_an_unknown_setting_in_the_file_is_refused(tmp_path: Path) -> None:
    """An unknown name in the file, such as a typing error, is refused."""
    (tmp_path / "voiceagent-tts.toml").write_text('api_key = "secret"\n')
    with pytest.raises(ValidationError, match="api_key"):
        Settings()


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
        ("RAMP", "1,4,2"),
        ("RAMP", ""),
        ("GPUS", "first"),
        ("WORKERS", "0"),
        ("LOG_JSON", "perhaps"),
        ("API_KEYS", "[1"),
        ("TRUSTED_PROXIES", "proxy.example"),
        ("TRUSTED_PROXIES", "10.0.0.5/24"),
        ("TRUSTED_PROXIES", "*,10.0.0.5"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value out of range or of another type is refused with its name, not corrected."""
    monkeypatch.setenv(f"VOICEAGENT_TTS_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_lists_of_numbers_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds on the command line and in the environment; `gpus` replaces `device`."""
    monkeypatch.setenv("VOICEAGENT_TTS_RAMP", "1,3,9")
    settings = Settings(gpus="0,1")  # type: ignore[arg-type]
    assert (settings.ramp, settings.gpus) == ((1, 3, 9), (0, 1))
    with pytest.raises(ValidationError, match="gpus or a device"):
        Settings(engine="qwen3", models=("m",), gpus=(0,), device="cpu")


def test_settings_do_not_change() -> None:
    """Settings are read once, at the start, and cannot be changed."""
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("value", ["key-1, key-2", '["key-1", "key-2"]', "key-1,key-2,"])
def test_keys_are_kept_as_hashes_only(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings hold only hashes of keys, whatever form the keys come in."""
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEYS", value)
    settings = Settings()
    assert settings.api_keys == (hash_key("key-1"), hash_key("key-2"))
    assert "key-1" not in repr(settings)


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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_needs_no_key(host: str) -> None:
    """Loopback needs no key."""
    assert Settings(host=host).api_keys == ()


def test_an_empty_list_of_keys_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable, as a container may pass it on, permits no access."""
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEYS", "")
    monkeypatch.setenv("VOICEAGENT_TTS_HOST", "0.0.0.0")
    with pytest.raises(ValidationError, match="expected keys"):
        Settings()


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
    ],
)
def test_an_upstream_that_does_not_fit_is_refused(values: dict[str, Any]) -> None:
    """An address of another protocol, and a burst to the engine itself."""
    with pytest.raises(ValidationError):
        Settings.model_validate(values)
