"""MiniWoB++: 130 small web pages, each with an instruction; the page itself gives the reward.

The pages are those of the package `miniwob` (MIT), seeded and carried out in a real Chromium on a
virtual clock, so that an episode depends on its seed and its actions alone. reading.py and
writing.py have the plan languages, browser/ the pages, build.py the records, task.py the verifier.
"""
