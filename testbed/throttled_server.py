"""`python -m testbed.throttled_server serve ...`: `voiceagent-tts` with slow or faulty engines.

The environment has the fields of `Throttle` as JSON.
"""

import json
import os

from testbed.throttled import VARIABLE
from testbed.throttling import throttling
from voiceagent_tts.cli import main

if __name__ == "__main__":
    with throttling(json.loads(os.environ[VARIABLE])):
        main()
