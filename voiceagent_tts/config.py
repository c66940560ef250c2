"""Settings of the server: the only reader of environment variables and configuration files.

Sources, highest priority first: command-line arguments, `VOICEAGENT_TTS_*` in the environment,
`voiceagent-tts.toml` in the working directory (or the file that `VOICEAGENT_TTS_CONFIG` names),
the defaults below.
"""

import hashlib
import json
import os
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from voiceagent_tts.bucket import is_bucket

DEFAULT_PORT = 8765
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_HASH_PREFIX = "sha256:"
_ENV_PREFIX = "VOICEAGENT_TTS_"
UPSTREAM_KEY = f"{_ENV_PREFIX}UPSTREAM_KEY"
"""The variable with the key for the upstream, which the server's worker reads, too."""
_OTHER_VARIABLES = ("CONFIG", "URL", "API_KEY")
"""Variables that are no settings of the server: its file, and a client's server and key."""


def hash_key(key: str) -> str:
    """Hash an API key as settings and files store it: `sha256:` and the hex digest.

    Keys are random 256-bit strings, so a slow password hash would add no security.
    """
    return _HASH_PREFIX + hashlib.sha256(key.encode()).hexdigest()


def is_redis(address: str) -> bool:
    """Whether an address is that of a Redis server, and not a path."""
    return address.startswith(("redis://", "rediss://", "unix://"))


def huggingface_home() -> Path:
    """Return the folder of downloaded model files."""
    return Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))


def upstream_key() -> str | None:
    """Return the API key for the upstream, in a worker; the server's settings put it there."""
    return os.environ.get(UPSTREAM_KEY) or None


def misspelt_variables() -> dict[str, str]:
    """Variables of the environment that look like a misspelt setting, and the setting's variable.

    Others are left alone: Kubernetes sets `VOICEAGENT_TTS_SERVICE_HOST` for a service of that name.
    """
    names = [*(name.upper() for name in Settings.model_fields), *_OTHER_VARIABLES]
    known = [_ENV_PREFIX + name for name in names]
    misspelt: dict[str, str] = {}
    for name in os.environ:
        if name.startswith(_ENV_PREFIX.removesuffix("_")) and name.upper() not in known:
            for near in get_close_matches(name.upper(), known, n=1, cutoff=0.9):
                misspelt[name] = near
    return misspelt


class Quota(BaseModel):
    """Limits of one API key or one address. None is no limit.

    Written as text: `contexts=20,chars_per_minute=9000`.

    Attributes:
        contexts: contexts that are open at the same time.
        contexts_per_s: new contexts per second.
        chars_per_minute: characters of text per minute.
        audio_s_per_day: seconds of generated audio within 24 hours.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    contexts: int | None = Field(default=None, ge=1)
    contexts_per_s: int | None = Field(default=None, ge=1)
    chars_per_minute: int | None = Field(default=None, ge=1)
    audio_s_per_day: int | None = Field(default=None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        """Accept JSON, or `name=number` separated by commas, for environment variables."""
        if not isinstance(value, str):
            return value
        if value.startswith("{"):
            return json.loads(value)
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return {name.strip(): number for name, _, number in (part.partition("=") for part in parts)}

    def over(self, general: "Quota") -> "Quota":
        """Return these limits, and those of `general` where there are none."""
        return general.model_copy(update=self.given)

    @property
    def given(self) -> dict[str, int]:
        """The limits that are set, by name."""
        return self.model_dump(exclude_none=True)

    def __str__(self) -> str:
        """The text form."""
        return ",".join(f"{name}={number}" for name, number in self.given.items())


class Settings(BaseSettings):
    """Settings of the server. Unknown names are refused.

    Attributes:
        host: Address to bind. Any address but loopback needs `keys`, `api_keys` or
            `allow_anonymous`.
        port: TCP port. 0 picks a free port, which the `ready` line names.
        engine: Speech engine: `espeak` (built in, any CPU), `pocket` (Pocket TTS, natural voices on
            a CPU, extra `pocket`), `qwen3` (natural voices, needs at least one of `models`),
            `openai` (the speech of the server at `upstream`, extra `upstream`) or `dashscope` (the
            hosted Qwen3-TTS of Alibaba Cloud Model Studio, needs `upstream_key`).
            Default: the best one that this machine can run with the models that are on it.
        models: Models to load, separated by commas. Qwen3-TTS: folders or Hugging Face ids; each
            model has worker processes of its own, and the voice of a request selects the model.
            Pocket TTS: names such as `english` and `french_24l`, or configuration files (`.yaml`),
            one for each language; the language of the text selects the model. Default: `english`.
        device: Device of the models: `cpu`, `cuda` or `cuda:N`. Default: the GPU, if the machine
            has one.
        gpus: GPU numbers, such as `0,1`, instead of `device`. Every model gets workers on each of
            these GPUs.
        workers: Worker processes per model and device, or of Pocket TTS. New contexts go to the
            least loaded one. Raise it if one worker does not use the whole GPU.
        precision: Number format of the models' weights: `float32`, `bfloat16` or `float16`; on a
            CPU also `int8`, `int4` (4 bits where that is faster than 8), and `auto` (the fastest of
            float32, bfloat16 and int8 for every matrix product, as timed on this machine). With
            fewer bits speech is faster, takes less memory and differs from that of the original
            weights. Default: bfloat16 on a GPU, float32 on a CPU.
        rows: Maximum number of contexts that one worker of Qwen3-TTS or Pocket TTS speaks at the
            same time. Default: Qwen3-TTS 8 on a CPU, and on a GPU up to 64, as many as have memory
            for one minute of speech each; Pocket TTS up to 16, as many as the CPU speaks in real
            time, measured at start.
        capacity: Positions in the key-value cache of one row. The prompt, including a clone's
            reference recording, and 12.5 frames per second of speech must fit. Raise it for long
            references or long segments.
        gpu_memory_gb: Maximum GPU memory of one worker, in units of 10^9 bytes, with the forced
            aligner if that shares the GPU. Default: most of the memory that is free at start. Set
            it if other programs share the GPU.
        codec_device: Second GPU that runs the audio codec, such as `cuda:1`. Default: the model's
            device.
        attention: Attention of plain kernels: `sdpa` (PyTorch) or `flash` (flash-attn, extra
            `flash`). Default: `flash` if it is installed.
        kernels: Kernels between the matrix products of talker and code predictor: `fused` (Triton,
            NVIDIA GPUs), `plain` (PyTorch), or `auto`, which uses fused kernels if a check at start
            succeeds. `skinny` is `fused` with a third fewer launches for steps of up to 16 rows;
            never run on a GPU, so try it by measuring.
        codec_kernels: Kernels of the audio codec: `plain` (PyTorch) or `fused` (Triton, NVIDIA
            GPUs), which reads and writes half as much memory. Never run on a GPU; try it by
            measuring.
        graphs: Capture GPU work as CUDA graphs at start. Turn it off only to debug: speech becomes
            much slower to generate.
        quantize: Store weights in 8 bits: on a GPU `fp8` or `int8` (extra `quantize`), for Pocket
            TTS `int8`, which makes it faster. Uses less memory; the generated speech differs from
            that of the original weights.
        tf32: Allow the GPU to round the inputs of float32 matrix products, as in the codec, to
            TF32. Default: allowed unless `precision` is `float32`.
        deterministic: Make a seed give bit-identical speech whatever else the server is speaking.
            Slower; turn it on for tests.
        initial_frames: Codec frames (80 ms each) in the first decoded chunk of a context that does
            not choose its own. Raise it if the first chunk underruns.
        ramp: Codec frames in the chunks that follow, ascending. A chunk is larger the more unplayed
            audio its listener already has.
        max_load: Maximum share of real time that one engine step may take; above it, new contexts
            are refused as overloaded. Default: 0.9 on a GPU, no limit on a CPU.
        threads: CPU threads per worker of Qwen3-TTS or Pocket TTS. Default: all cores.
        upstream: Address of another server's speech API, up to `/audio/speech`, such as
            `http://127.0.0.1:8880/v1`: any server with OpenAI's API that streams PCM. For Model
            Studio, the WebSocket of a region, such as
            `wss://dashscope-intl.aliyuncs.com/api-ws/v1/realtime`; by default that of Beijing.
        upstream_key: API key for the upstream.
        upstream_model: Model that the upstream is asked for. Default: `tts-1`, or
            `qwen3-tts-flash-realtime` of Model Studio.
        upstream_voices: Names of the upstream's voices, separated by commas, the default first.
            Default: those that it lists, or those in the documentation of its API.
        upstream_fields: JSON object of further fields for every request to the upstream, such as
            `{"lang_code": "a"}`, or for every session of Model Studio, such as `{"volume": 60}`.
        upstream_rate_hz: Sample rate of the upstream's PCM, in Hz.
        upstream_timeout_s: Seconds that the upstream may send nothing before its request fails.
        upstream_chars_per_day: Maximum number of characters sent upstream within 24 hours; beyond
            it, contexts are refused as overloaded. Counted from the start of the server. Default:
            no limit.
        overflow: Send contexts upstream while all rows of the engine are in use, instead of
            refusing them. Needs `upstream` and `upstream_chars_per_day`.
        voices_folder: Folder of cloned voices, and of the voices' lexicons, or `s3://BUCKET/PREFIX`
            (extra `s3`). The clones of Pocket TTS are in its subfolder `pocket`.
        voices_cache: Folder of the copies of voices in a bucket, from which engines read them.
        voices_cache_mb: Maximum size of the voices in a bucket, and so of their copies, in units of
            10^6 bytes. All servers of a bucket need the same.
        consent_mode: What a clone over HTTP needs: `statement` (a line that says who agreed, or a
            consent) or `recording` (a consent with a recording of its phrase).
        consent_similarity: Least similarity (cosine, -1 to 1) of the speakers of a consent's
            recording and of the voice made with it. The default was never tried on published
            weights: compare a few pairs of recordings before relying on it.
        voices_per_key: Most clones that one key may have added. Default: no limit.
        lexicon: TOML file of pronunciations for all contexts: `written = "said"`, one entry a line.
        aligner: Source of word times: `native` (the engine's own), `online` or `forced` (an
            aligner, for engines without word times), `auto` (the best available) or `off`
            (estimates only).
        aligner_model: Qwen3-ForcedAligner model: folder or Hugging Face id. Default: a downloaded
            one, if there is one.
        aligner_device: Device of the forced aligner: `cpu` or `cuda:N`. Default: a GPU without an
            engine; otherwise the GPU of the first Qwen3-TTS worker, in its process with lower
            priority, if it has memory for both; otherwise the CPU.
        aligners: Processes of the online aligner. Raise it if its word times arrive too late under
            load.
        throttle: Slows the engine down for tests and benchmarks: a JSON object with the fields of
            `worker.throttled.Throttle`.
        keys: JSON file or Redis address (`redis://HOST:PORT/DB`) of the API keys that
            `voiceagent-tts keys` manages. Changes take effect within two seconds.
        api_keys: API keys with all scopes, or their `sha256:` hashes, separated by commas. The
            server stores only hashes. Change them with a restart.
        allow_anonymous: Serve without API keys on an address that other machines can reach.
        allowed_origins: Web origins that may connect, separated by commas. Other requests with an
            `Origin` header are refused, except those from the server's own origin.
        trusted_proxies: Addresses or networks of proxies, separated by commas. Only their
            `X-Forwarded-For` header names the client's address, which `ip_limits` counts by.
        key_limits: Limits of every API key that has none of its own, such as
            `contexts=20,contexts_per_s=5,chars_per_minute=20000,audio_s_per_day=36000`.
        ip_limits: The same limits for every client address; an IPv6 address counts as its /64.
        redis: Redis address (`redis://HOST:PORT/DB`, extra `redis`) that shares limits and usage
            between servers. Default: each server counts in its own memory, until it ends.
        without_redis: What happens while Redis cannot be reached: `local` (each server applies the
            limits to its own contexts) or `refuse` (no new contexts of limited keys).
        cache_mb: Memory for phrases that are spoken again and again, in units of 10^6 bytes (one
            minute of speech takes 2.9). 0 turns the cache off: every text is spoken by an engine.
        cache_ttl_s: Seconds after which a cached phrase is dropped and spoken anew.
        cache_after: A phrase is stored when it is spoken for this time. With 1, sentences that are
            spoken only once fill the memory too.
        cache_redis_mb: Size of the cached phrases in Redis, in units of 10^6 bytes, which all
            servers share. Needs `redis`. Default: each server has its own phrases only.
        audit_log: File for the audit log: keys, voices and limits, in a chain of hashes. Each
            server needs its own.
        request_log: File for the request log: one JSON line for each context, without its text.
        hash_secret: Secret of the text hashes in the request log. Default: random at every start,
            so that hashes cannot be compared across starts or servers.
        sample_folder: Folder for requests with their text: those that failed, and
            `sample_share` of the others. Default: no text is stored.
        sample_share: Share of successful contexts that `sample_folder` stores, from 0 to 1.
        sample_folder_mb: Maximum size of `sample_folder`, in units of 10^6 bytes; the oldest
            requests are deleted.
        jobs_storage: Where the files of jobs are kept: a folder that all servers share, or
            `s3://BUCKET/PREFIX` (extra `s3`). Jobs need `redis`.
        jobs_at_once: Jobs that this server speaks at the same time. Raise it if rows are free while
            jobs wait; 0 leaves them to other servers.
        jobs_per_key: Maximum number of unfinished jobs of one key; on a server without keys, of one
            address. All keys together may have 10,000.
        jobs_keep_h: Hours after which a job and its file are deleted.
        webhook_secret: Secret that signs the news of jobs. Default: no webhooks are sent.
        webhook_private: Allow webhooks to http and to addresses of private networks. Only for
            clients that may reach everything that the server can reach.
        watermark: Mark all generated audio with an inaudible watermark, which `voiceagent-tts
            detect` and `/v1/provenance/detect` find. Turn it off only where the law does not ask
            for it, or where something else marks the audio.
        watermark_key: Secret key of the watermark: 64 hex digits. Default: the keys in
            `watermark_key_file`.
        watermark_key_file: File of watermark keys, one per line: the first one marks, all are
            detected. Created with a random key at the first start. All servers that share a
            service need the same keys.
        c2pa_certfile: Certificate chain in PEM form that signs a C2PA manifest (content
            credentials) for WAV, MP3 and FLAC files; extra `c2pa`.
        c2pa_keyfile: Private key of the certificate: P-256, P-384 or P-521, as PKCS #8.
        c2pa_self_signed: Sign C2PA manifests with certificates made for tests, which programs that
            read manifests report as untrusted.
        ssl_certfile: Certificate in PEM form, to serve HTTPS and WSS without a proxy.
        ssl_keyfile: Key of the certificate. Default: it is in `ssl_certfile`.
        ssl_self_signed: Serve HTTPS and WSS with a certificate that the server makes itself.
            Browsers warn of it once. They give sound and microphone to pages of other machines
            only over HTTPS.
        slots_port: Port on which HAProxy's agent check reads what share of the rows is free, and
            whether the server drains. Default: none.
        max_contexts: Maximum number of open contexts per WebSocket.
        max_sockets: Maximum number of open WebSockets.
        max_text_chars: Maximum number of characters per context that wait to be spoken.
        max_audio_s: Maximum seconds of audio per context.
        context_idle_s: Seconds without new text after which a context is ended.
        max_lead_s: Maximum seconds of audio that a context may be generated ahead of playback.
        first_audio_s: Seconds that an HTTP request waits for its first audio.
        slow_consumer_s: Seconds after which a WebSocket that does not read is closed (close code
            4008).
        ping_interval_s: Seconds between keepalive pings; also the time limit for the answer.
        drain_s: Seconds that open contexts may continue after SIGTERM.
        watchdog_s: Maximum age, in seconds, of the last successful synthesis. An idle server speaks
            a test word at a third of this age; beyond it, `/health/ready` reports unhealthy.
        log_json: Write logs as JSON lines instead of coloured text.
    """

    model_config = SettingsConfigDict(env_prefix=_ENV_PREFIX, extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    engine: Literal["espeak", "pocket", "qwen3", "openai", "dashscope"] | None = None
    models: Annotated[tuple[str, ...], NoDecode] = ()
    device: str | None = None
    gpus: Annotated[tuple[int, ...], NoDecode] = ()
    workers: int = Field(default=1, ge=1)
    precision: Literal["float32", "bfloat16", "float16", "int8", "int4", "auto"] | None = None
    rows: int | None = Field(default=None, ge=1)
    capacity: int = Field(default=4096, ge=64)
    gpu_memory_gb: float | None = Field(default=None, gt=0)
    codec_device: str | None = None
    attention: Literal["sdpa", "flash"] | None = None
    kernels: Literal["auto", "plain", "fused", "skinny"] = "auto"
    codec_kernels: Literal["plain", "fused"] = "plain"
    graphs: bool = True
    quantize: Literal["fp8", "int8"] | None = None
    tf32: bool | None = None
    deterministic: bool = False
    initial_frames: int = Field(default=1, ge=1)
    ramp: Annotated[tuple[Annotated[int, Field(ge=1)], ...], NoDecode] = (1, 2, 4, 8, 12)
    max_load: float | None = Field(default=None, gt=0)
    threads: int | None = Field(default=None, ge=1)
    upstream: str | None = None
    upstream_key: SecretStr | None = None
    upstream_model: str | None = None
    upstream_voices: Annotated[tuple[str, ...], NoDecode] = ()
    upstream_fields: dict[str, Any] | None = None
    upstream_rate_hz: int = Field(default=24_000, ge=8_000, le=48_000)
    upstream_timeout_s: float = Field(default=10.0, gt=0)
    upstream_chars_per_day: int | None = Field(default=None, ge=1)
    overflow: bool = False
    voices_folder: str = "~/.local/share/voiceagent-tts/voices"
    voices_cache: Path = Path("~/.cache/voiceagent-tts/voices")
    voices_cache_mb: float = Field(default=1000.0, gt=0)
    consent_mode: Literal["statement", "recording"] = "statement"
    consent_similarity: float = Field(default=0.5, ge=-1, le=1)
    voices_per_key: int | None = Field(default=None, ge=1)
    lexicon: Path | None = None
    aligner: Literal["auto", "native", "online", "forced", "off"] = "auto"
    aligner_model: str | None = None
    aligner_device: str | None = None
    aligners: int = Field(default=1, ge=1)
    throttle: dict[str, Any] | None = None
    keys: str | None = None
    api_keys: Annotated[tuple[str, ...], NoDecode] = ()
    allow_anonymous: bool = False
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = ()
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = ("127.0.0.1", "::1")
    key_limits: Annotated[Quota, NoDecode] = Quota()
    ip_limits: Annotated[Quota, NoDecode] = Quota()
    redis: str | None = None
    without_redis: Literal["local", "refuse"] = "local"
    cache_mb: float = Field(default=128.0, ge=0)
    cache_ttl_s: float = Field(default=86_400.0, gt=0)
    cache_after: int = Field(default=2, ge=1)
    cache_redis_mb: float = Field(default=0.0, ge=0)
    audit_log: Path | None = None
    request_log: Path | None = None
    hash_secret: SecretStr | None = None
    sample_folder: Path | None = None
    sample_share: float = Field(default=0.0, ge=0, le=1)
    sample_folder_mb: float = Field(default=100.0, gt=0)
    jobs_storage: str = "~/.local/share/voiceagent-tts/jobs"
    jobs_at_once: int = Field(default=2, ge=0)
    jobs_per_key: int = Field(default=1000, ge=1)
    jobs_keep_h: float = Field(default=24.0, gt=0)
    webhook_secret: SecretStr | None = None
    webhook_private: bool = False
    watermark: bool = True
    watermark_key: SecretStr | None = None
    watermark_key_file: Path = Path("~/.local/share/voiceagent-tts/watermark.keys")
    c2pa_certfile: Path | None = None
    c2pa_keyfile: Path | None = None
    c2pa_self_signed: bool = False
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_self_signed: bool = False
    slots_port: int | None = Field(default=None, ge=0, le=65535)
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

    @field_validator(
        "api_keys",
        "allowed_origins",
        "trusted_proxies",
        "models",
        "gpus",
        "ramp",
        "upstream_voices",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        """Accept a list as JSON or as text separated by commas, for environment variables."""
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
    def _check_ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or list(value) != sorted(set(value)):
            raise ValueError("expected ascending numbers of frames, such as 1,2,4,8,12")
        return value

    @model_validator(mode="after")
    def _check_engine(self) -> "Settings":
        if self.engine == "qwen3" and not self.models:
            raise ValueError(
                "engine qwen3: expected at least one model, got none; set VOICEAGENT_TTS_MODELS "
                "or --model, such as Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"
            )
        if self.engine == "pocket" and self.quantize == "fp8":
            raise ValueError("engine pocket: expected quantize int8 or none, got fp8")
        if self.gpus and self.device is not None:
            raise ValueError("expected gpus or a device, got both; keep one of them")
        return self

    @field_validator("redis", mode="after")
    @classmethod
    def _check_redis(cls, value: str | None) -> str | None:
        if value is not None and not is_redis(value):
            raise ValueError("expected a Redis address, such as redis://127.0.0.1:6379/0")
        return value

    @field_validator("upstream", mode="after")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://", "ws://", "wss://")):
            raise ValueError("expected an address such as http://127.0.0.1:8880/v1")
        return value

    @model_validator(mode="after")
    def _check_upstream(self) -> "Settings":
        if self.engine == "openai" and self.upstream is None:
            raise ValueError(
                "engine openai: expected the address of a server in upstream, got none; set "
                "VOICEAGENT_TTS_UPSTREAM or --upstream, such as http://127.0.0.1:8880/v1"
            )
        if self.engine in ("openai", "dashscope") and self.engine != self.upstream_engine:
            raise ValueError(
                "upstream: expected an address with http:// for engine openai, and with wss:// for "
                "engine dashscope"
            )
        if self.upstream_engine == "dashscope" and self.upstream_rate_hz != 24_000:
            raise ValueError("upstream_rate_hz: expected 24000, which Model Studio is asked for")
        if self.overflow and (self.upstream is None or self.upstream_chars_per_day is None):
            raise ValueError(
                "overflow: expected upstream, and upstream_chars_per_day, which bounds its cost; "
                "set both"
            )
        if self.overflow and self.engine in ("openai", "dashscope"):
            raise ValueError(f"expected engine {self.engine} or overflow, got both; keep one")
        return self

    @property
    def upstream_engine(self) -> Literal["openai", "dashscope"] | None:
        """The engine that speaks through the upstream, by the scheme of its address."""
        if self.upstream is None:
            return "dashscope" if self.engine == "dashscope" else None
        return "dashscope" if self.upstream.startswith("ws") else "openai"

    @model_validator(mode="after")
    def _check_cache(self) -> "Settings":
        if self.cache_redis_mb and (self.redis is None or not self.cache_mb):
            raise ValueError(
                "cache_redis_mb: expected redis and a cache_mb above 0 with it; set "
                "VOICEAGENT_TTS_REDIS, such as redis://127.0.0.1:6379/0"
            )
        return self

    @field_validator("trusted_proxies", mode="after")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value != ("*",):
            for network in value:  # uvicorn ignores what is none, without a word
                ip_network(network)
        return value

    @model_validator(mode="after")
    def _check_access(self) -> "Settings":
        if not self.is_loopback and not self.needs_key and not self.allow_anonymous:
            raise ValueError(
                f"expected keys where others can reach the server (host {self.host}); set "
                "VOICEAGENT_TTS_KEYS or VOICEAGENT_TTS_API_KEYS, or "
                "VOICEAGENT_TTS_ALLOW_ANONYMOUS=true to serve anyone"
            )
        return self

    @property
    def needs_key(self) -> bool:
        """Whether a request needs a key. A file of keys may be empty; then none is accepted."""
        return bool(self.api_keys) or self.keys is not None

    @model_validator(mode="after")
    def _check_certificate(self) -> "Settings":
        if self.ssl_self_signed and self.ssl_certfile is not None:
            raise ValueError("expected ssl_certfile or ssl_self_signed, got both; keep one of them")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("expected ssl_certfile with ssl_keyfile; name the certificate too")
        return self

    @model_validator(mode="after")
    def _check_c2pa(self) -> "Settings":
        if (self.c2pa_certfile is None) != (self.c2pa_keyfile is None):
            raise ValueError("expected c2pa_certfile and c2pa_keyfile together; got one of them")
        if self.c2pa_self_signed and self.c2pa_certfile is not None:
            raise ValueError("expected c2pa_certfile or c2pa_self_signed, got both; keep one")
        return self

    @property
    def signs_files(self) -> bool:
        """Whether files get a C2PA manifest."""
        return self.c2pa_self_signed or self.c2pa_certfile is not None

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach the server."""
        return self.host in LOOPBACK

    @property
    def pocket_models(self) -> tuple[str, ...]:
        """Models of Pocket TTS."""
        return self.models or ("english",)

    @field_validator("voices_folder", mode="before")
    @classmethod
    def _as_address(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @property
    def clones_address(self) -> str:
        """Folder or bucket of the engine's clones; those of one engine mean nothing to another."""
        address = self.voices_folder.rstrip("/") or "/"
        return f"{address}/pocket" if self.engine == "pocket" else address

    @property
    def clones_folder(self) -> Path:
        """Folder in which engines find their clones; for a bucket, that of its copies."""
        address = self.clones_address
        if not is_bucket(address):
            return Path(address).expanduser()
        return self.voices_cache.expanduser() / hashlib.sha256(address.encode()).hexdigest()[:16]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of priority: arguments, environment, file.

        Raises:
            ValueError: the environment names a file that does not exist.
        """
        named = os.environ.get("VOICEAGENT_TTS_CONFIG")
        path = Path(named or "voiceagent-tts.toml")
        if named and not path.is_file():
            raise ValueError(
                f"VOICEAGENT_TTS_CONFIG: there is no file {named!r}; name an existing TOML file"
            )
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)
