"""Models for the page's tests: directories that only say what they were trained on, and answers
that are fixed."""

import asyncio
import json

from plumbline.runs.metadata import METADATA, ModelMetadata
from plumbline.serve.backend import AnswerChunk, Backend

FORMS = {
    "forms": ["vpn-access", "library-card", "thesis-defence"],
    "held_out": ["thesis-defence"],
    "records": 60,
}
FORMS |= {"max_fields": 2, "instructions": "short"}


def trained_on_forms(folder, **changes):
    """A directory whose card says that a model was trained on forms."""
    folder.mkdir()
    card = {"recipe": "some 1", "stage": "rl", "task": "forms", "options": FORMS, **changes}
    (folder / METADATA).write_text(json.dumps(ModelMetadata(**card).to_json()))
    return str(folder)


class Fixed(Backend):
    """A `Backend` that gives what a function of the chat says, in small pieces."""

    family, context = "autoregressive", 4096

    def __init__(self, name, text_of, pause=0.0):
        self.name, self.text_of, self.pause = name, text_of, pause
        self.closed = 0

    def prompt_length(self, messages):
        return sum(len(message["content"]) for message in messages)

    async def answer(self, asked):
        text = self.text_of(asked)
        try:
            for start in range(0, len(text), 7):
                yield AnswerChunk(text=text[start : start + 7], tokens=(start,))
                await asyncio.sleep(self.pause)
            yield AnswerChunk(finish="stop", facts={"model": self.name})
        finally:
            self.closed += 1
