"""A server that serves nothing: it sleeps beside a process that it started and that takes no
SIGTERM, or says at its start what is wrong with it (`STAND_IN`) and ends."""

import json
import os
import signal
import sys
import time

if message := json.loads(os.environ.get("STAND_IN", "{}")).get("starts"):
    raise SystemExit(message)
if __name__ == "__main__" and os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
    sys.exit()
time.sleep(60)
