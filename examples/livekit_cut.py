"""A LiveKit agent is interrupted; its history has what was heard. No key, no room, no devices.

pip install '.[livekit]', start a server (voiceagent-tts serve), then

python examples/livekit_cut.py
"""

import asyncio
import os
from collections.abc import AsyncIterator

from livekit.agents import Agent, AgentSession, APIError, utils

from livekit.plugins import voiceagent
from voiceagent_tts.plugins.bench.livekit_devices import Loudspeaker, Screen, on_devices

URL = os.environ.get("VOICEAGENT_TTS_URL", "ws://127.0.0.1:8765")
TOKENS = ["Monday", ",", " Tues", "day", ", Wednesday", ", Thursday", ", and Friday", "."]


async def llm() -> AsyncIterator[str]:
    """Write a reply as a language model does; in your agent, this is `llm=`."""
    for token in TOKENS:
        yield token
        await asyncio.sleep(0.02)


async def main() -> None:
    """Interrupt a reply after two seconds, and print what the history has of it."""
    loudspeaker = Loudspeaker()  # plays in real time; in your agent, the room does
    async with utils.http_context.open():  # in your agent, LiveKit's job has one
        tts = voiceagent.TTS(url=URL, voice="nova", language="en")
        try:
            await tts.list_voices()
        except APIError as error:
            raise SystemExit(f"nothing can be spoken: {error.message}") from error
        session: AgentSession[None] = AgentSession(tts=tts, tts_text_transforms=None)
        agent = Agent(instructions="You are a shop's voice.")
        async with on_devices(session, agent, loudspeaker, None, Screen()):
            reply = session.say(llm())
            await loudspeaker.until(lambda: loudspeaker.played_s > 2.0)
            reply.interrupt()  # the user speaks
            await reply
            print("in the history:", reply.chat_items[-1].text_content)
        await tts.aclose()


if __name__ == "__main__":
    asyncio.run(main())
