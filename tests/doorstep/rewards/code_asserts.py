import ast

ALLOWED = (ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.BinOp, ast.Compare, ast.Name, ast.Load,
           ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.Lt, ast.Gt, ast.LtE, ast.GtE, ast.Eq, ast.UnaryOp, ast.USub)


def build(text):
    """The function f of a text, or None where it is anything but one line of arithmetic."""
    lines = [line for line in text.splitlines() if line.strip().startswith("def f(")]
    if not lines:
        return None
    try:
        tree = ast.parse(lines[-1].strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not all(isinstance(node, ALLOWED) for node in ast.walk(tree)):
        return None
    if any(isinstance(n, ast.Constant) and not isinstance(n.value, (int, float)) for n in ast.walk(tree)):
        return None
    space = {"__builtins__": {}}
    exec(compile(tree, "<answer>", "exec"), space)
    return space.get("f")


def passes(f, test):
    try:
        exec(test, {"f": f})
    except Exception:
        return False
    return True


def code_reward(completions, tests, **kwargs):
    scores = []
    for completion, cases in zip(completions, tests):
        f = build(completion)
        scores.append(1.0 if f and cases and all(passes(f, case) for case in cases) else 0.0)
    return scores
