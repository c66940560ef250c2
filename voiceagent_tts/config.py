"""Settings of the server: the only reader of environment variables and configuration files.

Read, first wins: arguments, `VOICEAGENT_TTS_*` in the environment, `voiceagent-tts.toml` in the
working directory (or the file that `VOICEAGENT_TTS_CONFIG` names), the defaults below.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

DEFAULT_PORT = 8765
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_HASH_PREFIX = "sha256:"


def hash_key(key: str) -> str:
    """`sha256:` and the hex digest of an API key, as settings and files hold it.

    Keys are 256-bit random strings, which need no slow hash.
    """
    return _HASH_PREFIX + hashlib.sha256(key.encode()).hexdigest()


def huggingface_home() -> Path:
    """Where downloaded model files are kept."""
    return Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))


class Settings(BaseSettings):
    """Everything a server can be told; unknown names are refused.

    Attributes:
        host: address to bind; anything but loopback needs `api_keys` or `allow_anonymous`.
        port: 0 takes a free one.
        engine: what speaks; `espeak`, or `qwen3` with at least one `model`.
        models: Qwen3-TTS models, their folders or ids, one worker each; a voice chooses its model.
        device: of the models: `cpu`, `cuda` or `cuda:N`; a GPU where there is one.
        gpus: numbers of GPUs, in place of a device: every model has workers on each of them.
        workers: of every model on a device; a context goes to the one with the fewest.
        precision: of the models: `float32`, `bfloat16`, `float16`; by default bfloat16 on a GPU.
        rows: contexts that one Qwen3-TTS worker speaks at a time; 8 on a CPU, and on a GPU as many,
            up to 64, as have memory for a minute each.
        capacity: positions of a row, which hold a prompt and 12.5 frames a second.
        gpu_memory_gb: the most of a GPU's memory, in 10^9 bytes, that a worker takes; most of what
            is free where not given.
        codec_device: another GPU, for the codec.
        attention: how it is computed: `sdpa`, or `flash` (extra `flash`), the default where that is
            installed.
        kernels: of talker and code predictor: `fused`, on an NVIDIA GPU with Triton; `plain`;
            `auto` fused ones where they can be used.
        graphs: whether what a GPU runs is captured once, at start; without, it is slower.
        quantize: weights of eight bits, `fp8` or `int8` (extra `quantize`): less memory, other
            codes.
        tf32: whether a GPU may round the factors of float32 products, which the codec's are; by
            default unless `precision` is `float32`.
        deterministic: a seed gives the same bits whatever else is spoken, at a cost.
        initial_frames: codec frames in a context's first decode window, where it does not say.
        ramp: codec frames in the windows that follow, rising: the more a listener has still to
            hear, the larger.
        max_load: share of real time that a step may take before new contexts are refused; by
            default 0.9 on a GPU, and on a CPU nobody is.
        threads: CPU threads of each Qwen3-TTS worker; all cores where not given.
        voices_folder: where cloned voices are kept.
        aligner: who finds the times of words: `native` the engine itself; `online` and `forced` an
            aligner where the engine has none; `auto` the best there are; `off` nobody, times are
            estimates.
        aligner_model: Qwen3-ForcedAligner, its folder or id; one that was downloaded is found.
        aligner_device: of that model: `cpu`, `cuda:N`; by default a GPU that no engine uses, else,
            and with `gpus`, the CPU.
        aligners: processes of the online aligner.
        throttle: fields of `worker.throttled.Throttle`, for tests and benchmarks.
        api_keys: keys, or their hashes as `hash_key` makes them; only hashes are kept.
        allow_anonymous: serve without keys on an address that others can reach.
        allowed_origins: web origins that may connect; others with an `Origin` are refused, except
            the server's own.
        max_contexts: contexts open at once on one socket.
        max_sockets: sockets open at once.
        max_text_chars: characters of one context that wait to be spoken.
        max_audio_s: audio of one context.
        context_idle_s: a context without new text for this long is ended.
        max_lead_s: how far a context may run ahead of its listener.
        first_audio_s: how long a request over HTTP waits for its first sound.
        slow_consumer_s: a socket that takes nothing for this long is closed (4008).
        ping_interval_s: between keepalive pings, and how long an answer may take.
        drain_s: how long contexts may go on after SIGTERM.
        watchdog_s: the age up to which the last real synthesis proves that the engine works.
        log_json: JSON log lines instead of coloured ones.
    """

    model_config = SettingsConfigDict(env_prefix="VOICEAGENT_TTS_", extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    engine: Literal["espeak", "qwen3"] = "espeak"
    models: Annotated[tuple[str, ...], NoDecode] = ()
    device: str | None = None
    gpus: Annotated[tuple[int, ...], NoDecode] = ()
    workers: int = Field(default=1, ge=1)
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    rows: int | None = Field(default=None, ge=1)
    capacity: int = Field(default=4096, ge=64)
    gpu_memory_gb: float | None = Field(default=None, gt=0)
    codec_device: str | None = None
    attention: Literal["sdpa", "flash"] | None = None
    kernels: Literal["auto", "plain", "fused"] = "auto"
    graphs: bool = True
    quantize: Literal["fp8", "int8"] | None = None
    tf32: bool | None = None
    deterministic: bool = False
    initial_frames: int = Field(default=1, ge=1)
    ramp: Annotated[tuple[Annotated[int, Field(ge=1)], ...], NoDecode] = (1, 2, 4, 8, 12)
    max_load: float | None = Field(default=None, gt=0)
    threads: int | None = Field(default=None, ge=1)
    voices_folder: Path = Path("~/.local/share/voiceagent-tts/voices")
    aligner: Literal["auto", "native", "online", "forced", "off"] = "auto"
    aligner_model: str | None = None
    aligner_device: str | None = None
    aligners: int = Field(default=1, ge=1)
    throttle: dict[str, Any] | None = None
    api_keys: Annotated[tuple[str, ...], NoDecode] = ()
    allow_anonymous: bool = False
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = ()
    max_contexts: int = Field(default=64, ge=1)
    max_sockets: int = Field(default=2000, ge=1)
    max_text_chars: int = Field(default=20_000, ge=1)
    max_audio_s: float = Field(default=3600.0, gt=0)
    context_idle_s: float = Field(default=120.0, gt=0)
    max_lead_s: float = Field(default=8.0, gt=0)
    first_audio_s: float = Field(default=30.0, gt=0)
    slow_consumer_s: float = Field(default=15.0, gt=0)
    ping_interval_s: float = Field(default=20.0, gt=0)
    drain_s: float = Field(default=30.0, ge=0)
    watchdog_s: float = Field(default=60.0, gt=0)
    log_json: bool = False

    @field_validator("api_keys", "allowed_origins", "models", "gpus", "ramp", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Lists may come as JSON or, in the environment, separated by commas."""
        if not isinstance(value, str):
            return value
        if value.startswith("["):
            return json.loads(value)
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("api_keys", mode="after")
    @classmethod
    def _hash(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(key if key.startswith(_HASH_PREFIX) else hash_key(key) for key in value)

    @field_validator("ramp", mode="after")
    @classmethod
    def _rising(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or list(value) != sorted(set(value)):
            raise ValueError("expected numbers of frames that rise, such as 1,2,4,8,12")
        return value

    @model_validator(mode="after")
    def _need_models(self) -> "Settings":
        if self.engine == "qwen3" and not self.models:
            raise ValueError("engine qwen3: expected models, the folder of at least one; got none")
        if self.gpus and self.device is not None:
            raise ValueError("expected gpus or a device; got both")
        return self

    @model_validator(mode="after")
    def _refuse_open_doors(self) -> "Settings":
        if not self.is_loopback and not self.api_keys and not self.allow_anonymous:
            raise ValueError(
                f"expected api_keys where others can reach the server (host {self.host}); set "
                "VOICEAGENT_TTS_API_KEYS, or VOICEAGENT_TTS_ALLOW_ANONYMOUS=true to serve anyone"
            )
        return self

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the file.

        Raises:
            ValueError: the environment names a file that does not exist.
        """
        named = os.environ.get("VOICEAGENT_TTS_CONFIG")
        path = Path(named or "voiceagent-tts.toml")
        if named and not path.is_file():
            raise ValueError(f"VOICEAGENT_TTS_CONFIG: there is no file {named!r}")
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)
