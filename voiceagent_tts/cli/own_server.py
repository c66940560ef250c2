"""Select the server for a command: the one at --url, or a temporary one in this process.

With --url the base install suffices; a temporary server needs the extras `server` and `espeak`.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator

from rich.console import Console

from voiceagent_tts.errors import ErrorCode, InvalidRequestError

_PRIVATE = {
    "keys": None,
    "api_keys": (),
    "key_limits": {},
    "ip_limits": {},
    "redis": None,
    "cache_redis_mb": 0.0,
    "request_log": None,
}
"""The only client has no API key, and its requests are not logged: settings for other servers do
not apply."""


@contextlib.asynccontextmanager
async def websocket_url(url: str | None, voice: str | None = None) -> AsyncIterator[str]:
    """Yield the address of the server at `url`, or of a temporary one within the block.

    Where the temporary one lacks `voice`, the block's error says how to get its files.
    """
    if url is not None:
        yield url
        return
    # Imported here because --url must work without the server's packages.
    from voiceagent_tts.cli.best_voice import choose_engine
    from voiceagent_tts.cli.logs import configure_logs
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.server.serve import running

    configure_logs(is_json=False, is_quiet=True)
    choice = choose_engine(read_settings({"host": "127.0.0.1", "port": 0, **_PRIVATE}))
    console = Console(stderr=True, highlight=False)
    if choice.reason is not None:
        console.print(choice.reason, markup=False, soft_wrap=True)
    async with contextlib.AsyncExitStack() as stack:
        with console.status("starting a temporary server"):
            server = await stack.enter_async_context(running(choice.settings))
        with _naming_the_model(voice or ""):
            yield server.websocket_url


@contextlib.contextmanager
def _naming_the_model(voice: str) -> Iterator[None]:
    """Say of an unknown voice which published model has it, if one that is not here does."""
    try:
        yield
    except InvalidRequestError as error:
        if error.code is ErrorCode.INVALID_VOICE and (hint := _hint_of(voice)):
            raise InvalidRequestError(hint, code=error.code) from error
        raise


def _hint_of(voice: str) -> str | None:
    from voiceagent_tts.seam.engine_kind import ABSENT, engine_kinds

    for kind in engine_kinds().values():
        for model in kind.published_models():
            if voice.casefold() in model.voices and model.place == ABSENT:
                return (
                    f"{voice} is a voice of {kind.name} whose files are not on this machine; "
                    f"`voiceagent-tts models download {model.name}` gets them"
                )
    return None
