"""`python -m voiceagent_tts`: the command line."""

from voiceagent_tts.cli import main

if __name__ == "__main__":
    main()
