"""What people bring to the door: scripts, rows, rewards, logs, each with its right answer, written
before it was tried.

The inputs of a kind are in its folder, in the form in which they come; `answers.yaml` beside them
says what is right. The module of the same name says what Plumbline makes of each. The inputs follow
public documentation and tutorials in structure; their words and figures are our own.
"""
