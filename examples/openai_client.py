"""Write speech to a file with OpenAI's own client: `pip install openai`, then

python examples/openai_client.py hello.mp3 "Hello there."
"""

import os
import sys

from openai import OpenAI

URL = os.environ.get("TTS_HTTP_URL", "http://127.0.0.1:8765")
KEY = os.environ.get("VOICEAGENT_TTS_API_KEY", "none needed on this machine")

if len(sys.argv) != 3 or "." not in sys.argv[1]:
    raise SystemExit(__doc__)
path, text = sys.argv[1:]
client = OpenAI(base_url=f"{URL}/v1", api_key=KEY)
with client.audio.speech.with_streaming_response.create(
    model="tts-1",
    voice="nova",
    input=text,
    response_format=path.rpartition(".")[2],  # type: ignore[arg-type]
) as response:
    response.stream_to_file(path)
