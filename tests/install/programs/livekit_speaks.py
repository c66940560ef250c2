"""The LiveKit plugin outside a room: prints the seconds of a whole text and of a token stream.

python livekit_speaks.py ws://HOST:PORT
"""

import asyncio
import sys

from livekit.agents import utils

from livekit.plugins import voiceagent


async def main() -> None:
    """Speak a sentence in both ways."""
    async with utils.http_context.open():
        tts = voiceagent.TTS(url=sys.argv[1])
        async with tts.synthesize("Hello there.") as whole:
            whole_s = sum([event.frame.duration async for event in whole])
        async with tts.stream() as stream:
            for token in ("Hel", "lo", " there", "."):
                stream.push_text(token)
            stream.end_input()
            stream_s = sum([event.frame.duration async for event in stream])
        await tts.aclose()
    print(f"{whole_s:.2f} {stream_s:.2f}")


asyncio.run(main())
