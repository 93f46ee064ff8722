"""The benchmark's app behind the forms site: its pages, made local, and what it receives, in the site's own terms."""

from collections.abc import Mapping

from plumbline_forms.formfactory.app import FlaskApp, Reply
from plumbline_forms.formfactory.pages import as_text
from plumbline_forms.site.page import Entries, View
from plumbline_forms.site.site import Response, Taken
from plumbline_forms.suite.declaration import Form

POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; font-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'"
)
"""What a page may load: whatever comes from here, nothing from elsewhere."""
STATIC = "/static/"
_HTML = "text/html; charset=utf-8"


class Hosted:
    """See `plumbline_forms.site.site.Application`."""

    def __init__(self, app: FlaskApp, pages: Mapping[str, bytes]) -> None:
        """Nothing is asked yet.

        Args:
            app: receives the forms.
            pages: of the forms, ready to be served, by the form's path.
        """
        self._app = app
        self._pages = {path: _page(200, content) for path, content in pages.items()}

    def page(self, view: View) -> Response:
        """See `Application.page`; pages depend on nothing, so each was asked for once, when the forms were read."""
        return self._pages[view.form.path]

    def take(self, view: View, content_type: str, body: bytes) -> Taken:
        """See `Application.take`: the app checks nothing, so whatever it does not fail on is taken."""
        reply = self._app.post(view.form.path, content_type, body)
        entries, files = in_terms_of(view.form, reply.entries, reply.files)
        refused = "" if reply.status < 400 else f"the app answered {reply.status}"
        return Taken(entries, files, refused, _shown(reply))

    def other(self, path: str) -> Response | None:
        """See `Application.other`: the app's own static files."""
        if path.startswith(STATIC):
            reply = self._app.get(path)
            return Response(reply.status, reply.body, {"content-type": reply.content_type})
        return None


def in_terms_of(form: Form, entries: Entries, files: Entries) -> tuple[Entries, Entries]:
    """What arrived, as a declared form would have it.

    A ticked box is "on", whatever its value is on the page. A form that is sent urlencoded carries the names of files
    as texts; they are files all the same, and an empty one is none.
    """
    kept: dict[str, tuple[str, ...]] = {}
    attached = dict(files)
    for name, values in entries.items():
        one = form.by_name.get(name)
        if one is not None and one.kind == "file":
            if names := tuple(value for value in values if value):
                attached[name] = attached.get(name, ()) + names
        elif one is not None and one.kind == "checkbox":
            kept[name] = ("on",)
        else:
            kept[name] = values
    return kept, attached


def _shown(reply: Reply) -> Response:
    """The reply to a form. A redirect leads out of the episode, so what it says is shown in its place."""
    status = 200 if 300 <= reply.status < 400 else reply.status
    text = reply.body.decode("utf-8", "replace")
    return _page(status, (text if reply.content_type.startswith("text/html") else as_text(text)).encode())


def _page(status: int, content: bytes) -> Response:
    return Response(status, content, {"content-type": _HTML, "content-security-policy": POLICY})
