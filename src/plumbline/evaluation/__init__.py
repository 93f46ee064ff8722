"""A frozen collect: a fixed split, intervals, breakdowns, paired tests, and the controls and the
oracle beside."""
