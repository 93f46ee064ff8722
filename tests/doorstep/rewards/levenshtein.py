def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def similarity(completions, answer, **kwargs):
    return [1 - distance(c[:200], a) / max(len(c[:200]), len(a), 1) for c, a in zip(completions, answer)]
