"""How judged rollouts become a gradient: advantages, and objectives over the log-probabilities of recorded choices."""
