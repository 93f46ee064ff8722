"""A browser agent without a browser: it tells the page as browser-use tells it, and carries out
what it is answered.

The page is the site's own, kept by the direct executor's `Visit`; what is copied from browser-use
are the markers and the order of attributes by which its text is read, and what its actions do that
a person's do not: `select_dropdown` chooses one option alone, `upload_file` replaces, and an action
that fails ends the step.
"""

import copy
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from selectolax.lexbor import LexborHTMLParser

from plumbline.errors import DataError
from plumbline.records import Example, Message, Request, Sampling
from plumbline.serve.backend import AnswerChunk, AnswerRequest, Backend
from plumbline.tasks.task import gold_of
from plumbline_forms.agent.scene import given_of
from plumbline_forms.executors.direct import Visit, encode
from plumbline_forms.executors.operations import Choose, Enter, Put, Tick
from plumbline_forms.executors.page import parse_page

HOST = "http://127.0.0.1:41733"
FIRST = 7
"""Added to a control's place: the agent's numbers do not begin with 1."""
_SYSTEM = (
    "You are an agent. {noise}\n- You are allowed to use a maximum of {actions} actions per step.\n"
)


def _object(required=None, **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


_INDEX, _TEXT, _FLAG = (
    {"type": "integer", "minimum": 1},
    {"type": "string"},
    {"type": "boolean", "default": True},
)
_MAYBE = {"anyOf": [_TEXT, {"type": "null"}], "default": None}
ACTIONS = {
    "done": _object(
        text=_TEXT,
        success=_FLAG,
        files_to_display={"anyOf": [{"type": "array", "items": _TEXT}, {"type": "null"}]},
    ),
    "navigate": _object(url=_TEXT, new_tab={"type": "boolean", "default": False}),
    "wait": _object(seconds={"type": "integer", "default": 3}),
    "click": _object(index=_INDEX),
    "input": _object(index=_INDEX, text=_TEXT, clear=_FLAG),
    "select_dropdown": _object(index=_INDEX, text=_TEXT),
    "upload_file": _object(index=_INDEX, path=_TEXT),
    "send_keys": _object(keys=_TEXT),
    "scroll": _object(
        down=_FLAG,
        pages={"type": "number", "default": 1.0},
        index={"anyOf": [_INDEX, {"type": "null"}]},
    ),
    "evaluate": _object(code=_TEXT),
}


def schema(variant="thinking", only=None):
    """The schema of a variant: thinking, plain or flash; `only` keeps these actions."""
    offered = [
        _object(**{name: one}) for name, one in ACTIONS.items() if only is None or name in only
    ]
    brain = {"flash": ["memory"], "plain": ["evaluation_previous_goal", "memory", "next_goal"]}
    keys = brain.get(variant, ["thinking", *brain["plain"]])
    plan = (
        {}
        if variant == "flash"
        else {"current_plan_item": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
    )
    actions = {"type": "array", "min_items": 1, "items": {"anyOf": offered}}
    required = [key for key in keys if key != "thinking"] + ["action"]
    return copy.deepcopy(_object(required, **dict.fromkeys(keys, _MAYBE), **plan, action=actions))


class FakeAgent:
    """An agent at a form of the site."""

    def __init__(self, site, view, task, files=(), actions=5, screen=10_000):
        self.site, self.task, self.files, self.actions, self.screen = (
            site,
            task,
            files,
            actions,
            screen,
        )
        self.episode = site.open(view)
        self.base = site.address(self.episode, view)
        self.task = task.replace("ADDRESS", HOST + self.base)
        self.history, self.top, self.said = [], 0, []
        self.url = ""
        self.outcome = None
        self.steps = 0
        self.noise = ""
        self.broken = None
        """A text that cannot be typed."""

    def go(self, path):
        """Load a page."""
        self._show(path, self.site.handle("GET", path))

    def _show(self, path, response):
        while response.status == 303:
            path = response.headers["location"]
            response = self.site.handle("GET", path)
        self.path, self.url, self.body = path, HOST + path, response.body
        self.visit, self.top, self.collects = Visit(parse_page(response.body)), 0, set()

    # -- what it tells -----------------------------------------------------------------------------

    def messages(self):
        """The chat of the step that is next."""
        lines = self._lines() if self.url else ["Empty DOM tree"]
        # what is a little outside is shown as well
        shown = lines[self.top : self.top + 2 * self.screen]
        above, below = (
            self.top / self.screen,
            max(0, len(lines) - self.top - self.screen) / self.screen,
        )
        history = "\n".join(["Agent initialized", *self.history])
        paths = "".join(f"{path}\n" for path in self.files)
        state = (
            f"<user_request>\n{self.task}\n</user_request>\n\n<agent_history>\n{history}\n</agent_history>\n\n"
            "<agent_state>\n<todo_contents>\n[empty]\n</todo_contents>\n"
            + (
                f"<available_file_paths>{paths}Use with absolute paths</available_file_paths>\n"
                if paths
                else ""
            )
            + "</agent_state>\n<browser_state>\n<page_stats>0 links</page_stats>\nCurrent tab: "
            "7B43\nAvailable tabs:\n"
            f"Tab 7B43: {self.url or 'about:blank'} - a page\n\n"
            f"<page_info>{above:.1f} pages above, {below:.1f} pages below</page_info>\n\n"
            "Interactive elements:\n"
            + "\n".join(shown)
            + "\n</browser_state>\n<step_info>Step1 maximum:9</step_info>\n"
        )
        system = _SYSTEM.format(actions=self.actions, noise=self.noise)
        return [{"role": "system", "content": system}, {"role": "user", "content": state}]

    def asked(self, wanted):
        """The step as the server asks it."""
        sampling = Sampling(temperature=0.2, max_tokens=4096)
        said = {"temperature": 0.2, "max_tokens": 4096}
        return AnswerRequest(
            request=Request((1, "serve", 0), self.messages(), sampling),
            schema=wanted,
            name="agent_output",
            said=said,
        )

    def _lines(self):
        tree = LexborHTMLParser(self.body.decode())
        nodes = (
            tree.css_first("form").css("input,textarea,select,button")
            if tree.css_first("form")
            else []
        )
        places = {node.mem_id: control for node, control in zip(nodes, self.visit.now, strict=True)}
        return self._of(tree.body, places, 0)

    def _of(self, node, places, depth):
        """The lines of what is in a node."""
        lines = []
        for child in node.iter(include_text=True):
            if child.tag == "-text":
                text = " ".join(child.text().split())
                lines += ["\t" * depth + text] if len(text) > 1 else []
            elif (control := places.get(child.mem_id)) is not None:
                if control.kind != "hidden" and self.visit.usable(control):
                    lines += ["\t" * depth + line for line in self._element(control)]
            elif child.tag == "label" and not child.attributes.get("for"):
                lines += [
                    "\t" * depth + f"[{900 + len(lines)}]<label />",
                    *self._of(child, places, depth + 1),
                ]
            elif child.tag not in {"script", "style"}:
                lines += self._of(child, places, depth)
        return lines

    def _element(self, control):
        """The lines of a control."""
        kind, own = control.kind, control.attributes
        tag = {
            "textarea": "textarea",
            "select": "select",
            "multiselect": "select",
            "button": "button",
        }.get(kind, "input")
        told = {"type": "submit" if tag == "button" else kind if tag == "input" else ""}
        told |= {
            key: own.get(key, "")
            for key in ("name", "id", "placeholder", "aria-label", "title", "pattern")
        }
        if kind in {"checkbox", "radio"}:
            told |= {"value": control.value, "checked": str(control.checked).lower()}
        elif control.is_typed and kind != "password":
            told["value"] = control.value[:100] + "..." * (len(control.value) > 100)
        if kind == "date":
            told |= {"format": "YYYY-MM-DD", "placeholder": told["placeholder"] or "YYYY-MM-DD"}
        if "required" in own:
            told["required"] = "true"
        after = []
        if kind in {"select", "multiselect"}:
            texts = [one.text[:30] + "..." * (len(one.text) > 30) for one in control.choices[:4]]
            more = [f"... {len(control.choices) - 4} more options..."] * (len(control.choices) > 4)
            told["multiselectable"] = "true" if kind == "multiselect" else ""
            told["compound_components"] = (
                "(name=Dropdown Toggle,role=button),(name=Options,role=listbox,"
                f"count={len(control.choices)},options={'|'.join([*texts, *more])})"
            )
        if kind == "multiselect":
            after = [
                (
                    f"\t[{500 + place}]<option value={one.value} "
                    f"selected={str(place in control.chosen).lower()} />"
                )
                for place, one in enumerate(control.choices)
            ]
        if kind == "file":
            several = "Files" if "multiple" in own else "File"
            told["compound_components"] = (
                f"(name=Browse Files,role=button),(name={several} Selected,role=textbox)"
            )
        attributes = "".join(f" {key}={value}" for key, value in told.items() if value)
        inner = [f"\t{control.label}"] if tag == "button" else []
        return [f"|SHADOW(open)|*[{control.index + FIRST}]<{tag}{attributes} />", *inner, *after]

    # -- what it does ------------------------------------------------------------------------------

    def carry_out(self, text):
        """One step's answer; False when it was the last."""
        answer = json.loads(text)
        self.said.append(answer)
        self.steps += 1
        results = []
        for act in answer["action"][: self.actions]:
            ((name, values),) = act.items()
            if name == "done":
                self.outcome = values
                return False
            before, result = self.url, self._do(name, values)
            results.append(result)
            if (
                self.url != before
                or name in {"navigate", "evaluate"}
                or result.startswith("Failed")
            ):
                break
        brain = [answer.get(key) for key in ("evaluation_previous_goal", "memory", "next_goal")]
        self.history.append("\n".join(["<step>", *filter(None, brain), "Result", *results]))
        return True

    def _do(self, name, values):
        match name:
            case "navigate":
                self.go(urlsplit(values["url"]).path)
                return f"Navigated to {values['url']}"
            case "wait":
                return "Waited for 1 seconds"
            case "scroll":
                self.top = max(0, self.top + self.screen * (1 if values["down"] else -10))
                return "Scrolled down the page 1.0 pages"
            case "evaluate":
                return self._script(values["code"])
        control = self.visit.now[values["index"] - FIRST]
        if not self.visit.usable(control):
            return f"Failed: element index {values['index']} not available"
        return self._use(name, values, control)

    def _use(self, name, values, control):
        if name == "input" and values["text"] == self.broken:
            return "Failed: it does not answer"
        if name == "input":
            self.visit.apply(Enter(control, values["text"], values["clear"]))
            return f"Typed '{values['text']}'"
        if name == "select_dropdown":
            wanted = values["text"].casefold()
            for place, one in enumerate(control.choices):
                if wanted in {one.text.casefold(), one.value.casefold()}:
                    self.visit.now[control.index] = replace(control, chosen=(place,))
                    return f"Selected dropdown option '{values['text']}' at index {values['index']}"
            return f"Failed: option with text or value '{values['text']}' not found"
        if name == "upload_file":
            assert values["path"] in self.files
            if control.index not in self.collects:
                self.visit.now[control.index] = replace(control, files=())
            self.visit.apply(Put(control, values["path"].rpartition("/")[2]))
            return f"Uploaded file {values['path']} to element {values['index']}"
        assert name == "click", name
        if control.kind == "button":
            self._send()
        elif control.kind in {"checkbox", "radio"}:
            self.visit.apply(Tick(control, True if control.kind == "radio" else None))
        return f"Clicked {control.kind} name={control.name}"

    def _send(self):
        if not self.visit.problem():
            kind, body = encode(self.visit.entries(), self.visit.model.forms[0].enctype)
            self._show(self.path, self.site.handle("POST", self.path, kind, body))

    def _script(self, code):
        """The two scripts that there are; whatever is in their data must not end the text that it
        stands in."""
        (data,) = re.findall(r"decodeURIComponent\('([A-Za-z0-9%_.~-]*)'\)", code)
        asked = json.loads(unquote(data))
        control = next(one for one in self.visit.model.controls if one.name == asked["name"])
        if "texts" not in asked:
            self.collects.add(control.index)
            return "Plumbline: files are collected"
        for text in asked["texts"]:
            place = next(
                at for at, one in enumerate(control.choices) if text in {one.text, one.value}
            )
            self.visit.apply(Choose(control, place, on=True))
        return f"Plumbline: {len(asked['texts'])} options chosen"


async def run(served, agent, wanted=None, most=40):
    """Let the agent go on until it is done; every answer that it got."""
    for _ in range(most):
        pieces = [piece async for piece in served.answer(agent.asked(wanted))]
        if not agent.carry_out("".join(piece.text for piece in pieces)):
            break
    return pieces[-1].facts


def paths(names):
    """Where an agent has files of these names."""
    return [f"/tmp/given/{name}" for name in sorted(names)]


class OraclePlanner(Backend):
    """A planner that knows every answer, the ceiling: it gives the gold plan of the example with
    these values."""

    family, context = "oracle", 1 << 20

    def __init__(self, examples: Sequence[Example], name: str = "oracle") -> None:
        self.name = name
        self._gold: Mapping[str, str] = {
            given_of(_user(one.messages))[0]: gold_of(one) for one in examples
        }

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Backend`: words, because it has no tokens."""
        return sum(len(one["content"].split()) for one in messages)

    async def answer(self, asked: AnswerRequest) -> AsyncGenerator[AnswerChunk, None]:
        """See `Backend`.

        Raises:
            DataError: none of its examples asks for these values.
        """
        gold = self._gold.get(given_of(_user(asked.request.messages))[0])
        if gold is None:
            raise DataError(
                "the oracle knows no example with these values",
                "ask it for one of its own examples",
            )
        yield AnswerChunk(text=gold, finish="stop", facts={"model": self.name})


def _user(messages: Sequence[Message]) -> str:
    """The first request of a chat."""
    return next((one["content"] for one in messages if one["role"] == "user"), "")
