"""A server that serves nothing: it sleeps, or says at its start what is wrong with it (`STAND_IN`) and ends."""

import json
import os
import time

if message := json.loads(os.environ.get("STAND_IN", "{}")).get("starts"):
    raise SystemExit(message)
time.sleep(60)
