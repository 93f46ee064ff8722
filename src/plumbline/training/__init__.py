"""Two visible loops, `sft.py` and `rl.py`, and what they need: an optimiser, schedules,
checkpoints, guards."""
