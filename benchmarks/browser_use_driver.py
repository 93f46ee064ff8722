"""Runs browser-use's agent on one task after another; started by its own interpreter, never
imported by Plumbline.

A task is a line of JSON on the standard input, its outcome a line of JSON on the standard output:

    {"task": text, "url": address of the model's server, "model": its name, "browser": path, "files": [paths],
     "agent": {arguments of Agent}, "llm": {arguments of ChatOpenAI}, "steps": most of them}
"""

import asyncio
import json
import os
import sys
import tempfile
import time

os.environ |= {
    "ANONYMIZED_TELEMETRY": "false",
    "BROWSER_USE_CLOUD_SYNC": "false",
    "BROWSER_USE_DISABLE_EXTENSIONS": "1",
    "BROWSER_USE_VERSION_CHECK": "false",
    "SKIP_LLM_API_KEY_VERIFICATION": "true",
    "BROWSER_USE_LOGGING_LEVEL": "result",
}

# What the library prints does not belong on the standard output, which holds the outcomes.
outcomes = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)

# It reads the environment when it is imported.
from browser_use import Agent, Browser, ChatOpenAI


async def run(asked):
    """One task in a browser of its own; what it came to."""
    with tempfile.TemporaryDirectory(prefix="browser-use-") as folder:
        browser = Browser(
            executable_path=asked["browser"],
            headless=True,
            chromium_sandbox=os.geteuid() != 0,
            enable_default_extensions=False,
            user_data_dir=folder,
            args=["--disable-gpu", "--disable-dev-shm-usage"],
        )
        llm = ChatOpenAI(
            model=asked["model"], base_url=asked["url"], api_key="none", **asked.get("llm", {})
        )
        agent = Agent(
            task=asked["task"],
            llm=llm,
            browser=browser,
            available_file_paths=asked.get("files", []),
            use_judge=False,
            calculate_cost=False,
            **{"use_vision": False, **asked.get("agent", {})},
        )
        began = time.monotonic()
        try:
            history = await agent.run(max_steps=asked.get("steps", 20))
            return {
                "steps": history.number_of_steps(),
                "seconds": time.monotonic() - began,
                "done": history.is_done(),
                "success": history.is_successful(),
                "said": history.final_result(),
                "errors": [error for error in history.errors() if error],
                "actions": history.action_names(),
            }
        finally:
            await browser.kill()


for line in sys.stdin:
    try:
        outcome = asyncio.run(run(json.loads(line)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome of this task
        outcome = {"failed": f"{type(error).__name__}: {error}"[:500]}
    outcomes.write(json.dumps(outcome) + "\n")
    outcomes.flush()
