"""The forms as data: 25 declarations in 8 domains, and the seeded records to be entered into
them."""
