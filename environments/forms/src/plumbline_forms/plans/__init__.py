"""A form's controls as agents number them, the oracle's plan, and plans as agents' JSON."""
