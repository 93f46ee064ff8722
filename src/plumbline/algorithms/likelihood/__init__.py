"""How a rollout's log-probability is computed: which of its states are scored, and what each counts."""
