"""The demo as a program in a clone: `python -m agents.pipecat_demo` is `voiceagent-tts demo`."""

import sys

from voiceagent_tts.cli import main

if __name__ == "__main__":
    main(["demo", *sys.argv[1:]])
