"""The job insights: a short analysis in Portuguese of a small table of the shop's figures."""
