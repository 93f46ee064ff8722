"""Reads plain-text steps into typed actions. Never raises, whatever the text."""

import re
from functools import lru_cache

from plumbline_forms.plans.actions import Action, Click, Done, Fill, Navigate, Plan, Submit
from plumbline_forms.plans.calls import read_call
from plumbline_forms.plans.labels import UNKNOWN, Names
from plumbline_forms.plans.meaning import URL, actions_of
from plumbline_forms.plans.quotations import has_quote, is_quoted, opens, plainer, quotations, unquoted
from plumbline_forms.plans.sentence import sentences
from plumbline_forms.plans.tokens import is_sign, tokens_of, verbs_of
from plumbline_forms.plans.unquoted import mentions
from plumbline_forms.plans.vocabulary import words_of
from plumbline_forms.plans.work import TooMuchWorkError, Work

MAX_CHARACTERS = 60_000
"""Of a completion; what is beyond is not read."""
MAX_STEPS = 300
"""Actions of a plan; what is beyond is not read."""
MAX_LINE = 12_000
"""Characters of one step; longer ones are not understood."""
MAX_VALUE = 10_000
"""Characters of one argument; longer ones are not understood."""
_MOST_LINES = 40
"""Line breaks in one quotation at which it may end."""

_MARKER = re.compile(
    r"\s{0,16}(?:\|\s{0,3})?(?:(?:[-*•>→◦▪‣·–—✓✅☐☑+]|#{1,4})\s{1,3})?(?:\[[ xX]?\]\s{1,3})?[*_#]{0,3}\s?"
    r"(?:(?P<word>step|passo|etapa|action|task|ação|acao|tarefa)\b\s{0,2}#?\s?)?"
    r"(?P<number>[(\[]?\d{1,4}(?:\.\d{1,3})?[ºª°]?(?:\s(?:passo|etapa|step)\b)?(?![\w/'\"@])[\ufe0f\u20e3]{0,2})?"
    r"[*_]{0,2}(?:\s{0,2}[:.)\]|–—-]{1,2})?[*_]{0,2}\s{0,4}",
    re.IGNORECASE,
)
"""What may stand before a step; it matches nothing, too."""
_DONE = re.compile(r"(?:done|finish(?:ed)?|concluído|pronto|fim)(?![\w-])(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_FAILED = "without success"
AROUND_URL = "'\"`<>()[]*_.,;“”‘’«»"
"""What stands around an address without quotation marks, and is none of it."""
_OPENING = 500
"""Characters in which a step that goes to an address says so, and of the longest title."""
_MOST_STEPS = 20_000
_TITLE_ROLES = frozenset({"noun", "article", "called", "adverb"})
"""Words that a line may have besides the label of a control, and ask for nothing."""
_FENCE = re.compile(r"`{3,}\w*|`*")


COSTLY = Plan((), "none+costly")
"""A plan that takes more than `work.MOST_WORK`."""


def read_steps(text: str, names: Names = UNKNOWN) -> Plan:
    """Read plain-text steps, one to a line; a value in quotes may go on over several lines.

    Markers and numbers may be of any style or missing. What claims to be a step (it has a number, or begins with a
    verb) and is not understood is counted as unread; what says that nothing is to be done is counted as idle.

    Args:
        text: what a model wrote.
        names: of the form's controls, where the form is known.
    """
    try:
        return _read_all(text, names, Work())
    except TooMuchWorkError:
        return COSTLY


def _read_all(text: str, names: Names, work: Work) -> Plan:
    actions: list[Action] = []
    unread = idle = 0
    topic = ""
    steps = _steps(text[:MAX_CHARACTERS], names, work)
    for at, line in enumerate(steps):
        said = read_line(line, names, work)
        if topic and (about := _about(topic, line, said, names, work)) is not None:
            said = about
        elif said == (Submit(),) and at + 1 < len(steps) and _heads(line, steps[at + 1], names, work):
            said = ()
        topic = _topic_after(line, said, topic, names)
        unread += said is None and topic == "" and claims(line)
        idle += said == () or (said is None and topic != "" and claims(line))
        actions += said or ()
        if len(actions) > MAX_STEPS:
            break
    cut = len(text) > MAX_CHARACTERS or len(actions) > MAX_STEPS
    how = "steps" if actions else "none"
    how += ("+unread" if unread else "") + ("+cut" if cut else "")
    return Plan(tuple(actions[:MAX_STEPS]), how, unread, idle)


def _steps(text: str, names: Names, work: Work) -> list[str]:
    """The lines that may be steps, without empty ones; a quotation that is open goes on in the next line."""
    steps: list[str] = []
    pending, lines = "", 0
    for line in cleaned(text).split("\n"):
        # Inside a quotation, or after a step that nobody will understand?
        may_go_on = opens(pending) and len(pending) < MAX_LINE and lines < _MOST_LINES and not _starts(line)
        if may_go_on and read_line(pending, names, work) is None:
            lines += has_quote(line)
            pending += "\n" + line
            continue
        steps.append(pending)
        pending, lines = "" if _FENCE.fullmatch(line.strip()) else line, 0
        if len(steps) > _MOST_STEPS:
            break
    return [one for one in (*steps, pending) if one]


def cleaned(text: str) -> str:
    """Without a thought before the answer, and with one kind of line break."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    return text.replace("\r\n", "\n").replace("\r", "\n")


def cut(line: str) -> tuple[re.Match[str], str]:
    """The marker of a line, and what it says."""
    marker = _MARKER.match(line)
    assert marker is not None
    return marker, line[marker.end() :].strip()


def _starts(line: str) -> bool:
    """Whether a line begins a step: with a marker, or with a verb of the table."""
    marker, rest = cut(line)
    marked = marker.group("word") is not None and marker.group("number") is not None
    return marked or _begins_with_verb(rest)


def claims(line: str) -> bool:
    """Whether a line that was not understood claims to be a step."""
    marker, rest = cut(line)
    return bool(rest.strip(" .:-*_`")) and (marker.group("number") is not None or _begins_with_verb(rest))


def _begins_with_verb(text: str) -> bool:
    words = words_of(text[:60])
    for word in words or ():
        if "verb" in word.roles:
            return True
        if "adverb" not in word.roles and not word.is_sign:
            return False
    return False


# -- what the lines around a line say ----------------------------------------------------------------------------


def _heads(line: str, following: str, names: Names, work: Work) -> bool:
    """Whether a line only announces the one below it: "### Submit", "Submit the form:", or with that one indented."""
    indents = [len(one) - len(one.lstrip()) for one in (line, following)]
    return (
        (_is_title(line) or indents[1] > indents[0])
        and not following.lstrip().startswith("#")
        and bool(read_line(following, names, work))
    )


def _is_title(line: str) -> bool:
    return line.lstrip().startswith("#") or line.rstrip(" *_").endswith(":")


def _topic_after(line: str, said: tuple[Action, ...] | None, topic: str, names: Names) -> str:
    """The control that the next line may be about without naming it; "" where there is none.

    It is the one that was just clicked on, or that a line names which asks for nothing ("2. **Full name**").
    """
    if said:
        clicked = said[0].label if len(said) == 1 and isinstance(said[0], Click) else ""
        if names.kind(clicked) not in {"", "checkbox"}:
            return clicked
        return topic if names.kind(topic) in {"multiselect", "checkboxes"} else ""
    if said == ():
        return topic
    named = mentions(cut(line)[1], names)
    if len(named) != 1 or not names.kind(named[0].text):
        return ""
    roles = _TITLE_ROLES | ({"verb", "link"} if _is_title(line) else frozenset())
    tokens = tokens_of(cut(line)[1], named) or []
    only = all(token.argument is not None or is_sign(token) or token.roles.keys() & roles for token in tokens)
    return named[0].text if only else ""


def _about(
    topic: str, line: str, said: tuple[Action, ...] | None, names: Names, work: Work
) -> tuple[Action, ...] | None:
    """What a line enters into the control that an earlier one named; None where it says itself what it is about."""
    body = cut(line)[1]
    if said is not None and not (
        len(said) == 1 and isinstance(said[0], Click | Submit) and not names.knows(said[0].label)
    ):
        return None
    if mentions(body, names) or opens(topic):
        return None
    about = read_line(f"'{topic}': {body}", names, work)
    return about if about and all(isinstance(one, Fill) and one.label == topic for one in about) else None


# -- one line ----------------------------------------------------------------------------------------------------


def read_step(line: str) -> Action | None:
    """Read one step by itself; None where it is none, or says more or less than one thing."""
    said = read_line(line)
    return said[0] if said is not None and len(said) == 1 else None


def read_line(line: str, names: Names = UNKNOWN, work: Work | None = None) -> tuple[Action, ...] | None:
    """Read one line.

    Args:
        line: of a plan.
        names: of the form's controls.
        work: of the whole plan, where there is more of it.

    Returns:
        Its actions; () where it says that nothing is to be done; None where it is not understood.

    Raises:
        TooMuchWorkError: the plan takes more than it may; never where `work` is None.
    """
    if len(line) > MAX_LINE:
        return None
    said, spent = _read(cut(line)[1], names)
    if work is not None:
        work.spend(spent)
    return said


# A group of rollouts says the same things again and again, whatever their numbers.
@lru_cache(maxsize=8192)
def _read(body: str, names: Names) -> tuple[tuple[Action, ...] | None, int]:
    """What a step says, and the work that it takes, which is the same where it is known from before."""
    work = Work()
    said = None
    if len(body) <= _OPENING and names.kind(body.strip("*_:# ")):
        return None, 1  # a title, although a label may begin like a step: "Access needs", "Select topics"
    try:
        for text in dict.fromkeys((body, *plainer(body))):
            said = _read_text(text, names, work)
            if said is not None:
                break
    except TooMuchWorkError:
        pass
    return said, work.spent


def _read_text(text: str, names: Names, work: Work) -> tuple[Action, ...] | None:
    work.look(len(text), words=min(len(text), _OPENING) if "/" in text else 0)
    if (done := _DONE.fullmatch(text)) is not None and (action := _done(done.group("rest"))) is not None:
        return (action,)
    if (url := _navigates(text, names)) is not None:
        return (Navigate(url),)
    if (called := read_call(text, names)) is not None:
        return tuple(called)
    said = sentences(text, names, work)
    if said is None:
        return None
    actions: list[Action] = []
    for one in said:
        entered = actions_of(one, text, names)
        if entered is None:
            return None
        actions += entered
    if any(len(value) > MAX_VALUE for action in actions for value in _texts(action)):
        return None
    return tuple(actions)


def _texts(action: Action) -> list[str]:
    return [value for name in action.__slots__ if isinstance(value := getattr(action, name), str)]


def _done(rest: str) -> Action | None:
    text = rest.lstrip(":.,;! ")
    if is_quoted(text) or not text:
        return Done(unquoted(text) if text else "")
    failed = text.removeprefix(_FAILED).lstrip(":.,; ")
    if failed != text and (is_quoted(failed) or not failed):
        return Done(unquoted(failed) if failed else "", success=False)
    return None


def _navigates(text: str, names: Names) -> str | None:
    """The address that a step goes to; None where it goes to none."""
    if "/" not in text:
        return None
    tokens = tokens_of(text[:_OPENING], ()) or []
    verbs = verbs_of(tokens)
    url = URL.search(text)
    if url is not None and verbs and any(token.role("noun") == "bar" for token in tokens):
        return url.group().rstrip(AROUND_URL)
    if not verbs or tokens[verbs[0]].role("verb") != "navigate" or len(next(quotations(text), ())) > 1:
        return None
    if any({"refusal", "doubt"} & token.roles.keys() for token in tokens[: verbs[0]]):
        return None
    if any(tokens[at].role("verb") in {"type", "use", "set", "append"} for at in verbs) and mentions(text, names):
        return None  # "go to the field L and type the address"
    rest = text[tokens[verbs[0]].end :].strip()
    if is_quoted(rest):
        return unquoted(rest) if "/" in rest else None
    if url is not None:
        return url.group().rstrip(AROUND_URL)
    last = rest.rsplit(" ", 1)[-1]
    last = unquoted(last) if is_quoted(last) else last.strip(AROUND_URL)
    return last if "/" in last else None
