"""A Pipecat service that another one may fail over to."""

from collections.abc import AsyncGenerator

from pipecat.frames.frames import Frame
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService


class Understudy(TTSService):
    """Takes over, and notes what it is asked to say."""

    def __init__(self) -> None:
        super().__init__(
            settings=TTSSettings(model=None, voice=None, language=None), push_start_frame=True
        )
        self.said: list[str] = []

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Note `text`."""
        self.said.append(text)
        yield None
