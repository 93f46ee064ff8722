"""A frozen collect: a fixed split, intervals, breakdowns, paired tests, and the baselines and the
oracle beside."""
