"""Tasks of Plumbline for other programs: each adapter is one function, and imports its program only when it is called.

A text that cannot be judged is unscored there, never 0: what each program has for that is used.
"""
