"""The smallest LiveKit agent with this voice: `pip install '.[agents]'`, OPENAI_API_KEY, then

lk agent console examples/livekit_minimal.py
"""

import os

from livekit.agents import Agent, AgentServer, AgentSession, JobContext, cli, inference
from livekit.plugins.openai import LLM, STT

from livekit.plugins import voiceagent

URL = os.environ.get("VOICEAGENT_TTS_URL", "ws://127.0.0.1:8765")

server = AgentServer(host="127.0.0.1")


@server.rtc_session()
async def entrypoint(ctx: JobContext) -> None:
    """Talk to one caller."""
    session = AgentSession[None](
        vad=inference.VAD(model="silero"),
        stt=STT(),
        llm=LLM(),
        tts=voiceagent.TTS(url=URL, language="en"),
        use_tts_aligned_transcript=True,  # a transcript in step with the voice
        tts_text_transforms=None,
    )
    await session.start(Agent(instructions="You are a helpful voice agent."), room=ctx.room)
    session.generate_reply(instructions="Greet the user.")


if __name__ == "__main__":
    cli.run_app(server)
