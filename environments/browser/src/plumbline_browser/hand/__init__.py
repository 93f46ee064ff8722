"""The hand that acts on a page: mouse, keys and the controls of forms, with the events that a
user's hand causes."""

from importlib.resources import files

PARTS = tuple(files(__package__) / name for name in ("mouse.js", "keys.js", "fields.js"))
"""What a page runs, in this order, to have `plumbline.hand`; the last line says what that can
do."""
