"""The checks of an audit: each a function from what was judged to findings."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from plumbline.checks.audit.bench import LIMIT, Bench, Verdict, ids, mean, shown
from plumbline.checks.audit.elsewhere import LATE
from plumbline.checks.audit.texts import DECIMAL_COMMA
from plumbline.checks.check import LEVELS, Finding, Level
from plumbline.evaluation.statistics import mean_interval, surely_over

EXACT = 1e-6
"""By what a reward of 1 may fall short."""
HIGH, AS_GOOD = 0.5, 0.9
"""Shares of what gold answers earn, from which on a control or a cheat is warned of, and is fatal: more than half of
what can be learnt knows nothing of the task, or nearly all. A task's own limits (`Headline.limits`) go before the
first. A gold answer that itself earns no more than the second is fatal; a length penalty may cost it less."""
EARNS = 0.05
"""Reward over the worst text's from which on a hostile text earns something; fatal from `HIGH` on."""
LOSES = 0.25
"""Share of its reward that a gold answer may lose by how it is written: a rubric may ask for form, with less weight
than the value has. From `HIGH` on it is fatal for decimal commas where the prompts' language has them: one
team's parser took `4,5` for no answer."""
OPPOSED, FEW = -0.5, 20
"""Correlation of two parts from which on they are opposed, and the verdicts that it needs."""
BOTH = 0.9
"""Two parts that some text raises to this both do not contradict one another."""
FLOOR = 0.05
"""What a part may pay for any text."""
SLOW, TIMES = 2.0, 50
"""Seconds, and times the median, that a verdict on a hostile text may take."""


def raises(seen: Bench) -> Iterator[Finding]:
    """A verifier that raises, or returns what is no reward: one finding for each thing to do about it."""
    by_fix: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in seen.every:
        if verdict.failure and not verdict.hung:
            ranged = "task.options.range" in verdict.fix
            by_fix["task.options.range" if ranged else verdict.fix].append(verdict)
    for verdicts in by_fix.values():
        fix = verdicts[0].fix
        counts = dict(Counter(verdict.kind for verdict in verdicts).most_common())
        named = ", ".join(f"{kind} {count}" for kind, count in counts.items())
        yield Finding(
            "fatal",
            f"{len(verdicts)} of {len(seen.every)} texts got no reward ({named}): {verdicts[0].failure}",
            check="raises",
            evidence={"count": len(verdicts), "of": len(seen.every), "raised": counts},
            samples=ids(verdicts),
            causes=("the range is another one than the recipe says; a run stops at the first such number",)
            if "task.options.range" in fix
            else ("the verifier takes a text for granted that a model need not write",),
            fix=fix,
        )


def slow(seen: Bench) -> Iterator[Finding]:
    """A verdict that does not come, or one that a text makes slow."""
    if hung := [verdict for verdict in seen.every if verdict.hung]:
        yield Finding(
            "fatal",
            f"{hung[0].failure}{'; the audit stopped there' if len(hung) > 1 else ''}",
            check="slow",
            evidence={"count": len(hung), "limit": LIMIT},
            samples=ids(hung),
            causes=("a regular expression that backtracks", "a loop that the text decides on", "a wait for something"),
            fix=hung[0].fix,
        )
    usual = float(np.median([one.seconds for one in seen.every])) if seen.every else 0.0
    late = [one for one in seen.hostile if not one.hung and one.seconds > max(SLOW, TIMES * usual)]
    if late:
        worst = max(late, key=lambda one: one.seconds)
        yield Finding(
            "warning",
            f"judging {worst.case} took {worst.seconds:.1f} s, and the median verdict {usual:.2g} s",
            check="slow",
            evidence={"seconds": worst.seconds, "median": usual},
            samples=ids(late),
            causes=("work that grows with more than the text's length",),
            fix="bound what the verifier does for one text",
        )


def parts(seen: Bench) -> Iterator[Finding]:
    """Parts that nothing reaches, that never vary, or that pay every text."""
    golden = any(one.score is not None for one in seen.golds)
    for name, values in seen.parts().items():
        known = [value for _, value in values if value is not None]
        if not known:
            yield Finding(
                "note",
                f"the part {name} was None for all {len(values)} texts: it is no part of this reward",
                check="part-silent",
                evidence={"part": name, "texts": len(values)},
            )
            continue
        least, most = min(known), max(known)
        evidence = {"part": name, "least": least, "most": most, "texts": len(known)}
        if most < 1 - EXACT and not golden:
            yield Finding(
                "note",
                f"no text tried raised the part {name} over {most:.2f}, and no gold answer says whether one can",
                check="part-unreached",
                evidence=evidence,
            )
        elif most == 0:
            yield Finding(
                "fatal",
                f"the part {name} was 0 for all {len(known)} texts, gold answers included",
                check="part-dead",
                evidence=evidence,
                causes=("it looks for what no answer has", "it reads the wrong column, or another unit or case"),
                fix="judge a gold answer by hand and see why the part is 0; or take it out",
            )
        elif most - least < EXACT:
            yield Finding(
                "warning",
                f"the part {name} was {most:.3g} for all {len(known)} texts, blank and hostile ones included: it "
                "teaches nothing",
                check="part-constant",
                evidence=evidence,
                causes=("it does not look at the answer",),
                fix="make it depend on the answer, or take it out",
            )
        elif least > FLOOR and name not in seen.task.form:
            worst = min((pair for pair in values if pair[1] is not None), key=lambda pair: pair[1] or 0.0)[0]
            yield Finding(
                "warning",
                f"the part {name} pays at least {least:.2f} for every text, for example {worst.case}",
                check="part-floor",
                evidence=evidence,
                fix="give 0 to an answer that has nothing of it",
            )


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Pearson's, of values that vary."""
    a, b = first - first.mean(), second - second.mean()
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def opposed(seen: Bench) -> Iterator[Finding]:
    """Parts of which one falls when the other rises, and that no text satisfies both."""
    tried = {id(verdict) for verdict in (*seen.golds, *seen.damaged)}
    found = seen.parts()
    for first, second in combinations(found, 2):
        pairs = [
            (id(verdict) in tried, a, b)
            for (verdict, a), (_, b) in zip(found[first], found[second], strict=False)
            if a is not None and b is not None
        ]
        among = np.array([(a, b) for chosen, a, b in pairs if chosen], dtype=np.float64).reshape(-1, 2)
        if len(among) < FEW or (np.ptp(among, axis=0) < EXACT).any() or max(min(a, b) for _, a, b in pairs) >= BOTH:
            continue
        correlation = _correlation(among[:, 0], among[:, 1])
        if correlation <= OPPOSED:
            best = max(min(a, b) for _, a, b in pairs)
            yield Finding(
                "fatal" if best < HIGH + EXACT else "warning",
                f"the parts {first} and {second} contradict each other: over {len(among)} gold and damaged answers "
                f"they correlate by {correlation:.2f}; none has over {best:.2f} of both",
                check="parts-contradict",
                evidence={"parts": [first, second], "correlation": correlation, "n": len(among), "best": best},
                causes=("one pays for what the other punishes",),
                fix="keep one of them, or make the gold answer the best answer for both",
            )


def oracle(seen: Bench) -> Iterator[Finding]:
    """Gold answers that earn less than 1, but for parts that are named already."""
    if not seen.golds:
        if any(verdict.hung for verdict in seen.every):
            return  # none was tried yet
        yield Finding(
            "note",
            "there are no gold answers: no ceiling was checked, no damaged answers and no other ways to write one",
            check="no-oracle",
            fix="give gold answers (task jsonl: task.options.gold)",
        )
        return
    scored = [(one, one.score) for one in seen.golds if one.score is not None]
    if not scored:
        return  # which is said where it is said why
    named = {one.evidence["part"] for one in parts(seen) if one.check in {"part-dead", "part-constant"}}
    named |= {part for one in opposed(seen) for part in one.evidence["parts"]}
    low = [(one, score) for one, score in scored if score.total < 1 - EXACT]
    lacking: dict[str, int] = defaultdict(int)
    idle, unexplained = seen.idle, []
    for verdict, score in low:
        paying = {name: value for name, value in score.parts.items() if name not in idle}
        short = {name for name, value in paying.items() if value is not None and value < 1 - EXACT}
        for name in short:
            lacking[name] += 1
        if not short or short - named:
            unexplained.append((verdict, score))
    if unexplained:
        worst, score = min(unexplained, key=lambda pair: pair[1].total)
        ceiling = mean(seen.golds)
        short_of = f"; short of {', '.join(f'{name} ({count})' for name, count in lacking.items())}" if lacking else ""
        yield Finding(
            "fatal" if score.total <= AS_GOOD + EXACT else "warning",
            f"{len(low)} of {len(scored)} gold answers earn less than 1 (mean {ceiling:.3f}, least {score.total:.3f}: "
            f"{worst.case}){short_of}",
            check="oracle",
            evidence={"n": len(scored), "low": len(low), "mean": ceiling, "least": score.total, "parts": dict(lacking)},
            samples=ids([one for one, _ in sorted(unexplained, key=lambda pair: pair[1].total)]),
            causes=(
                "the verifier does not read what the gold answers are written like",
                "a wrong gold answer",
                "the reward's range is not 0 to 1 (task jsonl: task.options.range)",
            ),
            fix="look at the first sample: either its gold answer or the verifier is wrong",
        )


def controls(seen: Bench) -> Iterator[Finding]:
    """Controls that earn too much."""
    for name, splits in seen.controls.items():
        split, verdicts = max(splits.items(), key=lambda item: mean(item[1]))
        if name not in seen.limits:  # the general limit is rough, and a small split may lie over it by chance
            split, verdicts = "all splits", [verdict for found in splits.values() for verdict in found]
        reward, limit = mean(verdicts), seen.limits.get(name, HIGH * seen.ceiling)
        totals = [one.score.total for one in verdicts if one.score is not None]
        if not surely_over(totals, limit) or reward - seen.floor < EXACT:
            continue  # not too high; or it earns what any text does, which is said of the part that pays it
        interval = mean_interval(totals)
        level: Level = "fatal" if reward >= AS_GOOD * seen.ceiling else "warning"
        worth = f"of the {seen.ceiling:.3f} that gold answers earn" if seen.golds else "where gold answers are unknown"
        yield Finding(
            level,
            f"the control {name} earns {interval:.3f} on {split} {worth}, and should earn at most {limit:.3f}: such "
            "answers will be learnt",
            check="control",
            evidence={"control": name, "split": split, "reward": asdict(interval), "limit": limit},
            samples=ids(sorted(verdicts, key=lambda one: -one.reward)),
            causes=(
                "form is paid for without content",
                "few different gold answers",
                "a verifier that only looks for one",
            ),
            fix="let form take away instead of pay, and measure content; or raise the limit, if it is that of the data",
        )


def hostile(seen: Bench) -> Iterator[Finding]:
    """Texts made to break verifiers that earn something."""
    by_text: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in seen.hostile:
        if verdict.score is not None and verdict.case.text.strip() != (verdict.case.example.gold or "").strip():
            by_text[verdict.case.text].append(verdict)
    earning = {text: mean(found) for text, found in by_text.items() if mean(found) - seen.floor > EARNS}
    if earning:
        text = max(earning, key=lambda one: earning[one])
        yield Finding(
            "fatal" if earning[text] - seen.floor > HIGH else "warning",
            f"{len(earning)} of {len(by_text)} hostile texts earn something, most {shown(text)}: {earning[text]:.3f}",
            check="hostile",
            evidence={"rewards": {shown(one): reward for one, reward in earning.items()}, "floor": seen.floor},
            samples=ids(by_text[text]),
            causes=("what cannot be read is taken for an answer", "an empty or broken answer gets a part by default"),
            fix="give nothing to a text that is no answer",
        )


def writings(seen: Bench) -> Iterator[Finding]:
    """Ways to write the gold value that lose too much."""
    ways = seen.written()
    lost = {way: found["loss"] for way, found in ways.items() if found["loss"] > LOSES + EXACT}
    if not lost:
        return
    comma = seen.commas and lost.get(DECIMAL_COMMA, 0.0) > HIGH
    named = ", ".join(f"{way} {loss:.0%}" for way, loss in sorted(lost.items(), key=lambda item: -item[1]))
    worst = DECIMAL_COMMA if comma else max(lost, key=lambda way: lost[way])
    yield Finding(
        "fatal" if comma else "warning",
        f"a gold answer loses over {LOSES:.0%} of its reward when it is written otherwise: {named}",
        check="writing",
        evidence=ways,
        samples=ids(seen.writings[worst]),
        causes=("a strict parser", "texts compared letter by letter"),
        fix="read leniently (plumbline.tasks.text has lenient_json.read_json and numbers.read_number), and let form "
        "take away a share of its own; or ask for the form in the prompt, if it matters",
    )


def readings(seen: Bench) -> Iterator[Finding]:
    """A lenient reading that pays less than the strict one, or readings that differ on gold answers."""
    both = [(one, score) for one, score in seen.scored if {"strict", "lenient"} <= score.readings.keys()]
    if worse := [pair for pair in both if pair[1].readings["lenient"] < pair[1].readings["strict"] - EXACT]:
        verdict, score = worse[0]
        yield Finding(
            "fatal",
            f"{len(worse)} of {len(both)} texts earn less when they are read leniently, for example {verdict.case} "
            f"({score.readings['lenient']:.3f}, strictly {score.readings['strict']:.3f})",
            check="readings",
            evidence={"count": len(worse), "of": len(both)},
            samples=ids([one for one, _ in worse]),
            causes=("the lenient reader changes what the strict one can read",),
            fix="read strictly first, and repair only what cannot be read so",
        )
    golds = {id(one) for one in seen.golds}
    apart = [
        one for one, score in both if id(one) in golds and score.readings["lenient"] - score.readings["strict"] > EXACT
    ]
    if apart:
        yield Finding(
            "warning",
            f"{len(apart)} gold answers earn less when they are read strictly: they are not well written themselves",
            check="readings",
            evidence={"count": len(apart), "of": len(golds)},
            samples=ids(apart),
            fix="write the gold answers as a strict reader wants them: SFT teaches their form",
        )


def labels(seen: Bench) -> Iterator[Finding]:
    """Gold answers that are labels, which explains what they lack."""
    if (found := seen.label) is not None:
        yield Finding(
            "fatal" if found.gold <= AS_GOOD * found.earns + EXACT else "warning",
            found.cause,
            check="label",
            evidence={"gold": found.gold, "template": found.template, "earns": found.earns},
            samples=ids(seen.golds),
            fix=found.fix((seen.users and seen.users.options.gold) or ""),
        )


def form(seen: Bench) -> Iterator[Finding]:
    """Completions in another form than a function reads."""
    if seen.misread is not None:
        yield Finding("fatal", seen.misread[0], check="form", samples=ids(seen.golds), fix=seen.misread[1])


def ranges(seen: Bench) -> Iterator[Finding]:
    """Ranges that nobody declared."""
    if seen.ranges:
        yield Finding(
            "note",
            "the functions' ranges are not declared; these figures take them from what gold answers, controls and "
            "hostile texts were given, and a run takes [0, 1]",
            check="range",
            fix=seen.ranges,
        )


def prints(seen: Bench) -> Iterator[Finding]:
    """A verifier that prints."""
    if count := seen.printed.count("\n"):
        first = seen.printed.split("\n")[0][:80]
        yield Finding(
            "note", f"the verifier printed {count:,} lines, first {first!r}: a run's log would too", check="prints"
        )


def conditions(seen: Bench) -> Iterator[Finding]:
    """Verdicts that come out otherwise on another thread, in another process and the like."""
    for found in seen.elsewhere:
        alarm = found.alarm and found.where == "on another thread"
        yield Finding(
            "note" if found.then == LATE else "fatal" if found.where == GROUPED else "warning",
            f"{found.count} of {found.of} texts were judged otherwise {found.where}: {found.verdict.case} got "
            f"{found.verdict.reward:.4f}, then {found.then}. {CALLED[found.where]}",
            check="elsewhere",
            evidence={"where": found.where, "count": found.count, "of": found.of},
            samples=(found.verdict.case.example.id,),
            causes=("an alarm (signal.alarm, SIGALRM), which works on the main thread of a process alone",)
            if alarm
            else CAUSES[found.where],
            fix="limit the time without signals (a process that is ended, or the library's own option: math_verify "
            "takes parsing_timeout=None and timeout_seconds=None), and let errors be raised, not scored"
            if alarm
            else "let a reward depend on the example and the answer alone",
        )


GROUPED = "in one call with other answers to the prompt"
"""As a run judges where threads do: it refuses such a reward."""
CALLED = {
    "on another thread": "Trainers call rewards on other threads.",
    "while an event loop runs": "Trainers and notebooks call rewards while an event loop runs.",
    GROUPED: "Trainers judge all answers to a prompt in one call.",
    "in one call with answers to other prompts": "TRL judges answers to several prompts in one call.",
    "in another process": "Trainers call rewards in other processes.",
    "in another working directory": "Trainers start workers in other directories.",
}
CAUSES = {
    "on another thread": ("state of a thread", "a connection that belongs to a thread"),
    "while an event loop runs": ("asyncio.run or run_until_complete inside of the function",),
    GROUPED: ("other answers of the same call", "a cache by prompt"),
    "in one call with answers to other prompts": ("the first row's columns are taken for all (answer[0])", "a cache"),
    "in another process": (
        "a global that something else set",
        "hash() or the order of a set, which differ from process to process",
        "what was judged before, or standard input",
    ),
    "in another working directory": ("a file that is named relative to the working directory",),
}


def repeat(seen: Bench) -> Iterator[Finding]:
    """Verdicts that come out otherwise the second time."""
    if seen.again:
        verdict, score = seen.again[0]
        second = "no reward" if score is None else f"{score.total:.4f}"
        yield Finding(
            "fatal",
            f"{len(seen.again)} of {seen.repeated} texts were judged otherwise the second time: {verdict.case} got "
            f"{verdict.reward:.4f}, then {second}",
            check="repeat",
            evidence={"count": len(seen.again), "of": seen.repeated},
            samples=ids([one for one, _ in seen.again]),
            causes=("random numbers, a clock, or what was judged before", "other answers of the same call", "threads"),
            fix="let a reward depend on the example and the answer alone",
        )


def cheat(seen: Bench) -> Iterator[Finding]:
    """A cheat that earns too much, and more than the controls, which are named already."""
    found = seen.cheat
    if found is None:
        return
    known = max((mean(one) for splits in seen.controls.values() for one in splits.values()), default=0.0)
    if found.reward <= max(HIGH * seen.ceiling, known + EARNS) or found.reward - seen.floor < EXACT:
        return
    yield Finding(
        "fatal" if found.reward >= AS_GOOD * seen.ceiling else "warning",
        f"an answer that knows nothing earns {found.reward:.3f} (n = {len(found.rewards)}; gold answers "
        f"{seen.ceiling:.3f}, the best control {known:.3f}): {shown(found.rule, 200)}",
        check="cheat",
        evidence={"reward": found.reward, "n": len(found.rewards), "best control": known, "rule": found.rule},
        samples=(found.example,),
        causes=("the reward looks for something that can be written without knowing",),
        fix="make this answer a control of the task, and let the reward see what it lacks",
    )


def check(seen: Bench) -> list[Finding]:
    """All findings, the gravest first. Of a reward that comes out otherwise each time nothing else is said: every
    figure would be chance. Gold answers that are labels, or in a form that is not read, explain what they lack."""
    if seen.misread is not None:
        return list(form(seen))
    grave = seen.label is not None and seen.label.grave
    chosen = BASIC if len(seen.again) > seen.repeated / 2 else (*BASIC, labels) if grave else CHECKS
    explained = {"oracle", "part-dead"} if seen.label is not None else set()
    found = [one for each in chosen for one in each(seen) if one.check not in explained]
    return sorted(found, key=lambda one: LEVELS.index(one.level))


BASIC: tuple[Callable[[Bench], Iterator[Finding]], ...] = (raises, slow, repeat, conditions, ranges, prints)
CHECKS: tuple[Callable[[Bench], Iterator[Finding]], ...] = (
    *BASIC,
    labels,
    oracle,
    controls,
    cheat,
    parts,
    opposed,
    hostile,
    writings,
    readings,
)
