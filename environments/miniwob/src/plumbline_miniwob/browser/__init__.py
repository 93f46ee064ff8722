"""The pages of MiniWoB++ at work: their time, what they show, and the hand that acts on them."""
