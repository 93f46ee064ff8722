"""The public FormFactory benchmark, imported from a checkout of the user's own: nothing of it is
part of Plumbline."""
