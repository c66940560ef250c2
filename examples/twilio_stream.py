"""Greet phone calls over Twilio's media streams (8 kHz µ-law both ways): extra `agents`."""
# Twilio is told where this runs: <Connect><Stream url="wss://your.host"/></Connect>

import asyncio
import base64
import json
import os

import numpy as np
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADState
from websockets.asyncio.server import ServerConnection, serve

from voiceagent_tts.client import AudioFormat, ClientAudio, ClientContext, TTSClient

URL = os.environ.get("VOICEAGENT_TTS_URL", "ws://127.0.0.1:8765")
PORT = int(os.environ.get("PORT", "8766"))
MULAW = AudioFormat(encoding="pcm_mulaw", sample_rate=8000)
GREETING = "Hello, and thank you for calling. Interrupt me whenever you like."
CODES = np.arange(255, -1, -1)  # ITU-T G.711 inverts the bits of each µ-law byte
PCM = np.where(CODES < 128, 1, -1) * ((CODES % 16 * 8 + 132 << CODES // 16 % 8) - 132)


async def answer(phone: ServerConnection) -> None:
    vad, played_ms, speaking = SileroVADAnalyzer(sample_rate=8000), 0, None
    vad.set_sample_rate(8000)
    async with TTSClient(URL) as client:
        context = await client.open(audio=MULAW)
        async for message in phone:
            match json.loads(message):
                case {"event": "start", "streamSid": sid}:
                    speaking = asyncio.create_task(speak(context, phone, sid))
                case {"event": "mark", "mark": {"name": name}} if speaking:
                    played_ms = int(name)  # returned when the audio before it was played
                case {"event": "media", "streamSid": sid, "media": {"payload": payload}}:
                    pcm = PCM[list(base64.b64decode(payload))].astype("<i2").tobytes()
                    if await vad.analyze_audio(pcm) is VADState.SPEAKING and speaking:
                        speaking = speaking.cancel() and None
                        await phone.send(json.dumps({"event": "clear", "streamSid": sid}))
                        print("heard:", (await context.cancel(played_ms)).text_spoken, flush=True)


async def speak(context: ClientContext, phone: ServerConnection, sid: str) -> None:
    await context.send_text(GREETING)
    await context.end()
    async for event in context:
        if isinstance(event, ClientAudio):
            media = {"payload": base64.b64encode(event.pcm).decode()}
            mark = {"name": str((event.sample_offset + len(event.pcm)) // 8)}  # its end in ms
            for reply in ({"event": "media", "media": media}, {"event": "mark", "mark": mark}):
                await phone.send(json.dumps({"streamSid": sid, **reply}))


async def main() -> None:
    async with serve(answer, "127.0.0.1", PORT) as server:
        await server.serve_forever()


asyncio.run(main())
