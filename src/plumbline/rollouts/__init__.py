"""What a policy draws for a task, judged: groups of rollouts."""
