"""What environments of web pages share: a Chromium, the hand that acts on its pages, and the steps
of plans.

Public are the names without an underscore in `chromium`, `pool`, `hand`, `controls`,
`plans.actions`, `plans.grammar`, `plans.reader` and `plans.writer`.
"""
