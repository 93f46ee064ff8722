"""A page that is not the suite's, and a user at it."""

from plumbline.tasks.forms.executors.direct import DirectExecutor
from plumbline.tasks.forms.executors.executor import Case
from plumbline.tasks.forms.plans.actions import Plan
from plumbline.tasks.forms.site.application import Taken
from plumbline.tasks.forms.site.body import grouped, read_body
from plumbline.tasks.forms.site.site import Response, Site
from plumbline.tasks.forms.site.view import View
from tests.forms.small import small_form

_HTML = {"content-type": "text/html; charset=utf-8"}


class OnePage:
    """Shows a page, and keeps what is sent."""

    def __init__(self):
        self.html, self.sent = "", []

    def page(self, view):
        return Response(200, self.html.encode(), _HTML)

    def other(self, path):
        return None

    def take(self, view, kind, body):
        entries, files = read_body(kind, body)
        self.sent.append(entries)
        return Taken(grouped(entries), grouped(files), "", Response(200, b"<html><body>ok</body></html>", _HTML))


def at_page(controls, *actions, executor=None, app=None, language="en"):
    """Carry out actions on a form with these controls: what was sent last (None: nothing), and the attempts.

    Another executor comes with the `OnePage` that its site serves.
    """
    app = app or OnePage()
    executor = executor or DirectExecutor(Site(app))
    app.html = (
        f'<!doctype html><html lang="{language}"><body><form method="post">{controls}<button>Send</button></form>'
    )
    app.sent.clear()
    (result,) = executor.run(Case(View(small_form())), [Plan(tuple(actions))])
    return (app.sent[-1] if app.sent else None), result.attempts
