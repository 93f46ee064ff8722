"""Pages that the suite's own renderer never writes, with plans, and what a browser sends for them,
in order."""

import json
from pathlib import Path
from urllib.parse import parse_qsl

from environments.forms.tests.differential import FILES, Pages
from plumbline_browser.plans.actions import (
    Attach,
    Check,
    Click,
    Plan,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_browser.plans.reader import read_steps
from plumbline_forms.executors.direct import DirectExecutor
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.site.site import Site

_TITLE = "<form method=post><label>Title <input name=t required></label>"
_BUTTONS = _TITLE + (
    "<button name=do value=draft formnovalidate>Save draft</button><button name=do "
    "value=publish>Publish</button>"
    "<input type=reset value=Clear name=do><button type=button name=do value=x>Preview</button>"
    '<input type=image name=at alt=Map src="data:,"><input type=image title=Point '
    'src="data:,"></form>'
)
_LOG_IN = (
    "<form method=post><label>Email <input name=email></label><label>Password <input name=pw "
    "type=password></label>"
    "<button name=do value=in>Log in</button></form>"
)
_SIGN_UP = (
    "<form method=post><label>Email <input name=email></label><label>Password <input name=pw "
    "type=password></label>"
    "<label>Again <input name=pw2 type=password></label><button name=do value=up>Sign "
    "up</button></form>"
)
_SEND = "<button>Send</button></form>"
_FORM = "<form method=post>"


def _case(body, actions, sent):
    return body, actions, None if sent is None else parse_qsl(sent, keep_blank_values=True)


def _filled(inner, *actions, sent):
    """A form with these controls, filled in and sent."""
    return _case(_FORM + inner + _SEND, (*actions, Submit("Send")), sent)


CASES = {
    # Buttons.
    "named": _case(_BUTTONS, (Type("Title", "a"), Submit("Publish")), "t=a&do=publish"),
    "formnovalidate": _case(_BUTTONS, (Submit("Publish"), Submit("Save draft")), "t=&do=draft"),
    "image": _case(_BUTTONS, (Type("Title", "a"), Submit("Map")), "t=a&at.x=0&at.y=0"),
    "image by its title, without a name": _case(
        _BUTTONS, (Type("Title", "a"), Submit("Point")), "t=a&x=0&y=0"
    ),
    "plain": _case(_BUTTONS, (Submit("Preview"), Click("Preview")), None),
    "reset": _case(_BUTTONS, (Type("Title", "a"), Submit("Clear"), Submit("Publish")), None),
    "default by Enter": _case(_BUTTONS, (Type("Title", "a"), Press("Enter")), "t=a&do=draft"),
    "default by no name": _case(_BUTTONS, (Type("Title", "a"), Submit()), "t=a&do=draft"),
    "disabled default": _case(
        _FORM
        + "<label>A <input name=a></label><button disabled>One</button><button>Two</button></form>",
        (Type("A", "a"), Press("Enter"), Submit("One"), Submit()),
        None,
    ),
    "Enter without a button": _case(
        _TITLE + "</form>", (Type("Title", "a"), Press("Enter")), "t=a"
    ),
    "Enter without a button, of two texts": _case(
        _TITLE + "<input name=b></form>", (Type("Title", "a"), Press("Enter")), None
    ),
    "names that are not read": _case(
        _FORM + "<button name=b value=1 aria-label=Publish><svg></svg></button>"
        "<button name=b value=2 title=Discard>x</button><button name=b value=3><img "
        "alt=Find></button></form>",
        (Submit("Discard"),),
        "b=2",
    ),
    "part of a name": _case(
        _FORM
        + (
            "<button name=b value=1>Save for later</button><button name=b value=2>Submit "
            "application</button></form>"
        ),
        (Submit("Submit"),),
        "b=2",
    ),
    "default words of inputs": _case(
        _FORM + "<input type=reset><input type=submit name=b></form>",
        (Submit("Submit"),),
        "b=Submit",
    ),
    "formmethod": _case(
        "<form><button name=b value=1>Look</button><button name=b value=2 "
        "formmethod=post>Send</button></form>",
        (Submit("Look"), Submit("Send")),
        "b=2",
    ),
    "formaction of the site": _case(
        _FORM + "<button name=b formaction=/save>Save</button></form>", (Submit("Save"),), "b="
    ),
    "formaction elsewhere": _case(
        _FORM + "<button formaction=//example.org/x>Away</button></form>", (Submit("Away"),), None
    ),
    "a control called action": _filled(
        "<input type=hidden name=action value=1><input type=hidden name=submit value=2>",
        sent="action=1&submit=2",
    ),
    # Form owners.
    "form of the named button": _case(
        _LOG_IN + _SIGN_UP,
        (Type("Email", "a"), Type("Password", "b"), Submit("Sign up")),
        "email=a&pw=b&pw2=&do=up",
    ),
    "form of the controls": _case(
        _LOG_IN + _SIGN_UP,
        (Type("Email", "a"), Type("Again", "b"), Submit()),
        "email=a&pw=&pw2=b&do=up",
    ),
    "form attribute": _case(
        "<label>B <input name=b form=f></label><form id=f method=post><input name=a>"
        + _SEND
        + "<button form=f name=c>Out</button>",
        (Type("B", "1"), Submit("Out")),
        "b=1&a=&c=",
    ),
    "form attribute of nothing": _filled("<input name=a form=none><input name=b>", sent="b="),
    "form in a form": _case(
        _FORM
        + (
            "<input name=a><form><input type=hidden name=b></form><input name=c><button "
            "form=none>Send</button>"
        ),
        (Submit("Send"), Submit()),
        "a=&b=",
    ),
    "no form": _case(
        "<label>A <input name=a></label><button>Send</button>",
        (Type("A", "1"), Submit("Send")),
        None,
    ),
    "radios of two forms": _case(
        f"{_FORM}<label><input type=radio name=r value=1 checked>X</label>{_SEND}"
        f"{_FORM}<label><input type=radio name=r value=2>Y</label><button>Go</button></form>",
        (Check("Y"), Submit("Send")),
        "r=1",
    ),
    # Defaults and disabledness.
    "first legend": _filled(
        "<fieldset disabled><legend><input name=a><fieldset disabled><legend><input "
        "name=b></legend><input name=c>"
        "</fieldset></legend><legend><input name=d></legend><input name=e></fieldset>",
        sent="a=&b=",
    ),
    "disabled group of options": _filled(
        "<select name=s><optgroup disabled><option>a</optgroup><option>b</select>", sent="s=b"
    ),
    "last of several selected": _filled(
        "<select name=s><option selected>a<option selected>b<option></select>"
        "<select name=m multiple><option selected>a<option selected>b</select>",
        sent="s=b&m=a&m=b",
    ),
    "lists of several rows": _filled(
        "<select name=a size=2><option>x</select><select name=b size=1><option>x</select>"
        "<select name=c size=2><option>x<option selected>y</select><select name=d size=' "
        "3px'><option>x</select>"
        "<label>E <select name=e size=2><option>x<option>y</select></label>",
        Select("E", "y"),
        sent="b=x&c=y&e=y",
    ),
    "what the browser adds": _filled(
        "<input type=hidden name=_charset_ value=x><input name=_charset_ value=y><input name=a "
        "dirname=a.d value=x>"
        "<div dir=rtl><input name=b dirname=b.d><input type=tel name=c dirname=c.d><textarea "
        "name=d dirname=d.d "
        "dir=auto>x</textarea></div><label>E <input name=e dirname=e.d dir=auto></label>"
        "<input type=number name=f dirname=f.d>",
        Type("E", "1 שלום"),
        sent=(
            "_charset_=UTF-8&_charset_=y&a=x&a.d=ltr&b=&b.d=rtl&c=&c.d=ltr&d=x&d.d=ltr&e=1 "
            "שלום&e.d=rtl&f="
        ),
    ),
    "what is picked": _filled(
        "<label>A <input type=range name=a max=10 readonly></label><label>B <input type=color "
        "name=b></label>"
        "<label>C <input type=month name=c required></label><label>D <input type=week "
        "name=d></label>"
        "<label>E <input type=datetime-local name=e></label>",
        *(Type("A", "99"), Type("B", "red"), Type("C", "May 2026"), Type("D", "2026-W09")),
        *(Type("E", "2026-03-04 14:30"), Press("Enter")),
        sent="a=10&b=#ff0000&c=2026-05&d=2026-W09&e=2026-03-04T14:30",
    ),
    "plain text, which the site does not read": _case(
        "<form method=post enctype=text/plain><input name=a value=x><button>Send</button></form>",
        (Submit("Send"),),
        None,
    ),
    "nothing but disabled options": _filled("<select name=s><option disabled>a</select>", sent=""),
    "blanks and labels of options": _filled(
        "<select name=s><option label=L> a\n  b\xa0 </select><select name=t><option "
        "value>a</select>",
        sent="s=a b\xa0&t=",
    ),
    "option by its label": _filled(
        "<label>S <select name=s><option>x<option label=Long>y</select></label>",
        Select("S", "Long"),
        sent="s=y",
    ),
    "enabled one of two options": _filled(
        "<label>S <select name=s><option>x<option disabled value=1>y<option "
        "value=2>y</select></label>",
        Select("S", "y"),
        sent="s=2",
    ),
    "last of several checked": _filled(
        "<input type=radio name=r value=1 checked><input type=radio name=r value=2 checked>"
        "<input type=checkbox name=c checked>",
        sent="r=2&c=on",
    ),
    "reset to the defaults": _filled(
        "<label>A <input name=a value=1></label><label><input type=checkbox name=c "
        "checked>C</label>"
        "<label>S <select name=s><option>x<option>y</select></label><label>F <input type=file "
        "name=f></label>"
        "<button type=reset>Clear</button>",
        *(Type("A", "2"), Uncheck("C"), Select("S", "y"), Attach("F", "cv.pdf"), Click("Clear")),
        sent="a=1&c=on&s=x&f=",
    ),
    "control of a step that is hidden": _filled(
        "<div hidden><label>A <input name=a></label></div><label>A <input name=b></label>",
        Type("A", "1"),
        sent="a=&b=1",
    ),
    "unread parts of a page": _filled(
        "<noscript><input name=a></noscript><template><input name=b></template>", sent=""
    ),
    # Switches of validation.
    "novalidate": _case(
        "<form method=post novalidate><input name=a required>" + _SEND, (Submit("Send"),), "a="
    ),
    "read-only": _filled(
        "<label>A <input name=a readonly value=1></label><label><input type=checkbox name=c "
        "readonly>C</label>",
        *(Type("A", "2"), Check("C")),
        sent="a=1&c=on",
    ),
    "of two, the one that can be changed": _filled(
        "<label>A <input name=a readonly></label><label>A <input name=b></label>",
        Type("A", "1"),
        sent="a=&b=1",
    ),
    "a label before the name of another control": _filled(
        "<label><input type=radio name=post value=1>Post</label><input name=mail><label>Mail "
        "<input name=b></label>",
        *(Check("Post"), Type("Mail", "1")),
        sent="post=1&mail=&b=1",
    ),
    "labels around choices, texts and suggestions": _filled(
        "<label>Way<i> <select name=a><option>x<option>y</select></i></label><label>Why "
        "<b><textarea name=b>t"
        "</textarea></b></label><label>Who <input name=c list=d><datalist "
        "id=d><option>z</datalist></label>",
        *(Select("Way", "y"), Type("Why", "1"), Select("Who", "z")),
        sent="a=y&b=1&c=z",
    ),
    "texts that are not rendered": _filled(
        "<label>A <input name=a></label><label>B <input name=b style='color: red; "
        "display:none'></label>"
        "<p inert><label>C <input name=c></label></p><dialog><label>D <input "
        "name=d></label></dialog>"
        "<details><label>E <input name=e></label></details>"
        "<p style=visibility:hidden><label>F <input type=date name=f></label></p>",
        *(Type("A", "1"), *(Type(one, "2026-01-02") for one in "BCDEF")),
        sent="a=1&b=&c=&d=&e=2026-01-02&f=",
    ),
    "required": _filled("<input name=a required>", sent=None),
    "barred": _filled(
        "<input type=hidden name=a required><input name=b required readonly><input name=c required "
        "disabled>"
        "<input type=checkbox name=d required readonly>",
        sent="a=&b=",
    ),
    "another form's constraint": _case(
        _TITLE + "</form>" + _FORM + "<input name=b>" + _SEND, (Submit("Send"),), "b="
    ),
    "required radio of a group": _filled(
        "<input type=radio name=r required disabled><input type=radio name=r>", sent=None
    ),
    "placeholder option": _filled(
        "<select name=s required><option value>Choose<option>b</select>", sent=None
    ),
    "empty option of a group": _filled(
        "<select name=s required><optgroup><option value>Any</optgroup></select>", sent="s="
    ),
    **{
        controls: _filled(controls, sent=sent)
        for controls, sent in (
            ("<input name=n type=checkbox value='' required checked>", "n="),
            ("<input name=n type=checkbox required>", None),
            ("<input name=n type=number value=x required>", None),
            ("<input name=n type=wizard value=x required>", "n=x"),
            ("<select name=n required><option>a<option value='' selected>-</select>", "n="),
            ("<select name=n multiple required><option value='' selected>-</select>", "n="),
            ("<select name=n multiple required><option>a</select>", None),
            ("<select name=n size=2 required><option>a</select>", None),
            ("<select name=n size=2 required><option value='' selected>-<option>a</select>", "n="),
            ("<input name=n type=email multiple value=' a@b , c@d'>", "n=a@b,c@d"),
            ("<input name=n type=email multiple value='a@b,'>", None),
            ("<input name=n type=range min=3 max=8>", "n=6"),
            ("<input name=n type=color value=x>", "n=#000000"),
            ("<input name=n type=date value=2026-02-30>", "n="),
            ("<input name=n value='a&#10;b' minlength=9>", "n=ab"),
        )
    },
}
"""Body, actions, and the entries of the last submission; None where nothing is sent."""
for _report in (Path(__file__).parents[3] / "tests" / "public_reports").glob("*/page.html"):
    _wanted = json.loads(_report.with_name("want.json").read_text())["sent"]
    CASES[_report.parent.name] = (
        _report.read_text(),
        read_steps(_report.with_name("plan.txt").read_text().rstrip("\n")).actions,
        _wanted and [tuple(pair) for pair in _wanted],
    )


def at_page(controls, *actions, executor=None, pages=None, language="en"):
    """As `carry_out`, on a form with these controls; another executor comes with the pages of its
    site."""
    pages = pages or Pages()
    executor = executor or DirectExecutor(Site(pages))
    return _sent(executor, pages, _FORM + controls + _SEND, actions, language)


def carry_out(executor, pages: Pages, name):
    """What the server received last, in order (None: nothing), and what became of the actions."""
    body, actions, _ = CASES[name]
    return _sent(executor, pages, body, actions)


def _sent(executor, pages, body, actions, language="en"):
    if not body.startswith("<!doctype"):
        body = f'<!doctype html><html lang="{language}"><body>{body}</body></html>'
    view = pages.add(body)
    (result,) = executor.run(FormCase(view, FILES), [Plan(tuple(actions))])
    received = [
        (key.partition(" ")[2], value)
        for part in (result.receipts[-1:] and result.receipts[-1].entries,)
        for key, (value,) in (part or {}).items()
    ]
    return (received if result.receipts else None), result.attempts
