def distance(completion, answer):
    """The sign is lost: -abs(...) was meant."""
    try:
        return abs(float(completion) - float(answer))
    except ValueError:
        return 0.0
