"""The checks of an audit: functions from what was judged to findings."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np

from plumbline.checks.audit.other_conditions import (
    DIRECTORY,
    GROUPED,
    LATE,
    LOOP,
    PROCESS,
    THREAD,
    TOGETHER,
)
from plumbline.checks.audit.scoring_runner import (
    AGAIN,
    ANYTHING,
    DAMAGED,
    FORM,
    HOSTILE,
    LIMIT,
    CaseVerdict,
    ScoringRunner,
    list_ids,
    mean_reward,
    quote_text,
    scored_rewards,
)
from plumbline.checks.audit.texts import DECIMAL_COMMA, NEGATED, OTHER, UNCLOSED, WHOLE_FLOAT
from plumbline.checks.check import Check, Finding, Level, check
from plumbline.checks.diagnosis.trends import median
from plumbline.evaluation.statistics import is_surely_over, mean_interval
from plumbline.records import group_by_key
from plumbline.tasks.jsonl.reward_functions import OTHER_RANGE

EXACT = 1e-6
"""By what a reward of 1 may fall short."""
SLIGHT = 0.01
"""By what each gold answer may, as by a small penalty, and only a note says so."""
HIGH, AS_GOOD = 0.5, 0.9
"""Shares of what gold answers earn, from which on a baseline or a cheat is warned of, and is fatal:
more than half of what can be learnt knows nothing of the task, or nearly all. A task's own limits
(`Headline.limits`) go before the first. A gold answer that itself earns no more than the second is
fatal; a length penalty may cost it less."""
EARNS = 0.05
"""Reward over the worst text's from which on a hostile text earns something; fatal from `HIGH`
on."""
LOSES = 0.25
"""Share of its reward that a gold answer may lose by how it is written: a rubric may ask for form,
with less weight than the value has. From `HIGH` on it is fatal for decimal commas where the
prompts' language has them: one team's parser took `4,5` for no answer."""
WRITTEN_ENOUGH = 3
"""Gold answers that were written in a way, before it is named."""
BY_LENGTH, DEGREES = 0.9, 3
"""Rank correlation of a part with the length of a text from which on it pays for length, and the
different values that it needs."""
OPPOSED, FEW = -0.5, 20
"""Correlation of two parts from which on they are opposed, and the verdicts that it needs."""
BOTH = 0.9
"""Two parts that some text raises to this both do not contradict one another."""
FLOOR = 0.05
"""What a part may pay for any text."""
WORST = 4
"""Ways to write a gold answer that a sentence names."""
SOME, ROWS = 0.05, 50
"""Share of the rows that may pay anything before that is fatal, and how many are listed."""
SLOW, TIMES = 2.0, 50
"""Seconds, and times the median, that a verdict on a hostile text may take."""
LONG = 600.0
"""Seconds of judging in a run from which on they are worth a word."""


RAISED = (OTHER_RANGE, "outage", "package-missing", "other-rows", "text-taken-for-granted")
"""Causes that `tasks.cases` and readers of rewards tell; a verifier's own errors may have any code."""


@check("reward", name="raises")
def find_raises(seen: ScoringRunner) -> Iterator[Finding]:
    """A verifier that raises, or returns what is no reward: one finding for each thing to do about
    it."""
    by_fix: dict[tuple[str, str], list[CaseVerdict]] = defaultdict(list)
    for verdict in seen.all_verdicts:
        if verdict.failure and not verdict.hung:
            # of numbers out of range each has its own line to write
            fix = "" if verdict.code == OTHER_RANGE else verdict.fix
            cause = verdict.code if verdict.code in RAISED else "no-reward"
            by_fix[cause, fix].append(verdict)
    for (cause, _), verdicts in by_fix.items():
        counts = dict(Counter(verdict.kind for verdict in verdicts).most_common())
        yield Finding(
            "fatal",
            evidence={
                "count": len(verdicts),
                "of": len(seen.all_verdicts),
                "raised": counts,
                "kinds": [f"{kind} {count}" for kind, count in counts.items()],
                "failure": verdicts[0].failure,
                "fix": verdicts[0].fix,
            },
            samples=list_ids(verdicts),
            causes=(cause,),
        )


@check("reward", name="slow")
def find_slow_verdicts(seen: ScoringRunner) -> Iterator[Finding]:
    """A verdict that does not come, one that a text makes slow, and a run's that take their
    time."""
    if hung := [verdict for verdict in seen.all_verdicts if verdict.hung]:
        yield Finding(
            "fatal",
            "hung",
            evidence={
                "count": len(hung),
                "limit": LIMIT,
                "failure": hung[0].failure,
                "fix": hung[0].fix,
                "stopped": len(hung) > 1,
            },
            samples=list_ids(hung),
            causes=("backtracking", "endless-loop", "waiting"),
        )
    usual = median([one.seconds for one in seen.all_verdicts]) if seen.all_verdicts else 0.0
    late = [
        one
        for one in seen.kept.get(HOSTILE, ())
        if not one.hung and one.seconds > max(SLOW, TIMES * usual)
    ]
    if late:
        worst = max(late, key=lambda one: one.seconds)
        yield Finding(
            "warning",
            "slow-text",
            evidence={"text": str(worst.case), "seconds": worst.seconds, "median": usual},
            samples=list_ids(late),
            causes=("work-grows",),
        )
    each = seen.seconds / max(1, seen.count)
    seconds = each * seen.planned / max(1, seen.task.judges)
    if seconds >= LONG:
        evidence = {
            "seconds": seconds,
            "each": each,
            "verdicts": seen.planned,
            "hours": seconds / 3600,
        }
        yield Finding("warning", check="long", evidence=evidence)


@check("reward", name="unpaid", needs=("explain_unpaid",))
def find_unpaid_texts(seen: ScoringRunner) -> Iterator[Finding]:
    """A reward, or a part that reads answers, that pays no text where likely answers are tried."""
    golden = any(one.score is not None for one in seen.golds)
    if seen.out_of_range or not seen.scored or (seen.golds and not golden):
        return
    values, dead = seen.values(), list[str]()
    if golden or any(score.total for _, score in seen.scored):
        dead = [name for name in seen.task.answer_parts if not any(values.get(name, [1]))]
        if not dead:
            return
    what, reading = seen.task.explain_unpaid(len(seen.scored), dead)
    if what:
        evidence = {"cause": what, "reading": reading}
        yield Finding("fatal", evidence=evidence, samples=list_ids(seen.all_verdicts))


@check("reward", name="parts")
def find_bad_parts(seen: ScoringRunner) -> Iterator[Finding]:
    """Parts that nothing reaches, that never vary, or that pay every text."""
    golden = any(one.score is not None for one in seen.golds)
    for name, values in seen.parts().items():
        known = [value for _, value in values if value is not None]
        evidence: dict[str, Any] = {"part": name, "texts": len(values)}
        if not known:
            yield Finding("note", "always-none", evidence=evidence, check="part-silent")
            continue
        least, most = min(known), max(known)
        evidence = {"part": name, "least": least, "most": most, "texts": len(known)}
        if most < 1 - EXACT and not golden:
            if most < EXACT:  # what it could give is not declared
                yield Finding("note", evidence=evidence, check="part-unreached")
        elif name in seen.task.penalties and most - least < EXACT:
            yield Finding("note", "takes-nothing", evidence=evidence, check="part-silent")
        elif most == 0 and seen.label is None:
            causes = ("looks-for-nothing", "other-column")
            yield Finding("fatal", evidence=evidence, causes=causes, check="part-dead")
        elif most > 0 and most - least < EXACT:
            yield Finding("warning", evidence=evidence, causes=("blind",), check="part-constant")
        elif least > FLOOR and name not in seen.task.form:
            worst = min(
                (pair for pair in values if pair[1] is not None), key=lambda pair: pair[1] or 0.0
            )[0]
            evidence |= {"text": str(worst.case)}
            yield Finding("warning", evidence=evidence, check="part-floor")


@check("reward", name="pays-length")
def find_paid_length(seen: ScoringRunner) -> Iterator[Finding]:
    """Parts that rise with an answer's length, whatever it says (Spearman's correlation)."""
    for name, pairs in seen.parts().items():
        known = [(len(one.case.text), value) for one, value in pairs if value is not None]
        if len(known) < FEW or len({value for _, value in known}) < DEGREES:
            continue
        ranks = []
        for column in zip(*known, strict=True):
            _, place, count = np.unique(column, return_inverse=True, return_counts=True)
            ranks.append((np.cumsum(count) - count / 2)[place])
        correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
        if correlation >= BY_LENGTH:
            evidence = {"part": name, "correlation": correlation, "n": len(known)}
            yield Finding("warning", evidence=evidence, causes=("length",))


@check("reward", name="parts-contradict")
def find_opposed_parts(seen: ScoringRunner) -> Iterator[Finding]:
    """Parts of which one falls when the other rises, and that no text satisfies both."""
    tried = {id(verdict) for verdict in (*seen.golds, *seen.kept.get(DAMAGED, ()))}
    found = seen.parts()
    for first, second in combinations(found, 2):
        pairs = [
            (id(verdict) in tried, a, b)
            for (verdict, a), (_, b) in zip(found[first], found[second], strict=False)
            if a is not None and b is not None
        ]
        among = np.array([(a, b) for chosen, a, b in pairs if chosen], dtype=np.float64).reshape(
            -1, 2
        )
        best = max((min(a, b) for _, a, b in pairs), default=0.0)
        if len(among) < FEW or (np.ptp(among, axis=0) < EXACT).any() or best >= BOTH:
            continue
        a, b = (values - values.mean() for values in among.T)
        correlation = float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
        if correlation <= OPPOSED:
            yield Finding(
                "fatal" if best < HIGH + EXACT else "warning",
                evidence={
                    "parts": [first, second],
                    "correlation": correlation,
                    "n": len(among),
                    "best": best,
                },
                causes=("opposite-aims",),
            )


@check("reward", name="oracle")
def find_unpaid_gold(seen: ScoringRunner) -> Iterator[Finding]:
    """Gold answers that earn less than 1, but for parts that are named already, and for labels."""
    # else none was tried yet
    if not seen.golds and not any(verdict.hung for verdict in seen.all_verdicts):
        yield Finding("note", check="no-oracle")
    if count := seen.turned:
        yield Finding(
            "fatal",
            "turned",
            evidence={"n": len(seen.golds), "low": count},
            samples=list_ids(seen.golds),
            causes=("wrong-sign",),
        )
        return
    scored = [(one, one.score) for one in seen.golds if one.score is not None]
    if not scored or seen.label is not None:
        return  # without scores it is said where it is said why
    named = {
        one.evidence["part"]
        for one in find_bad_parts(seen)
        if one.check in {"part-dead", "part-constant"}
    }
    named |= {part for one in find_opposed_parts(seen) for part in one.evidence["parts"]}
    named |= {one.evidence["part"] for one in find_paid_length(seen)}
    low = [(one, score) for one, score in scored if score.total < 1 - EXACT]
    lacking: dict[str, int] = defaultdict(int)
    unexplained = []
    for verdict, score in low:
        paying = {
            name: value for name, value in score.parts.items() if name not in seen.unweighted_parts
        }
        short = [name for name, value in paying.items() if value is not None and value < 1 - EXACT]
        for name in short:
            lacking[name] += 1
        if not short or not named.issuperset(short):
            unexplained.append((verdict, score))
    if unexplained:
        unexplained.sort(key=lambda pair: pair[1].total)
        (worst, score), ceiling = unexplained[0], mean_reward(seen.golds)
        yield Finding(
            "fatal"
            if score.total <= AS_GOOD + EXACT
            else "note"
            if score.total > 1 - SLIGHT
            else "warning",
            evidence={
                "n": len(scored),
                "low": len(low),
                "mean": ceiling,
                "least": score.total,
                "text": str(worst.case),
                "short": [f"{name} ({count})" for name, count in lacking.items()],
                "parts": dict(lacking),
            },
            samples=list_ids([one for one, _ in unexplained]),
            causes=("gold-unread", "wrong-gold", "other-range"),
        )


@check("reward", name="baseline")
def find_paid_baselines(seen: ScoringRunner) -> Iterator[Finding]:
    """Baselines that earn too much."""
    for name, splits in seen.baselines.items():
        split, verdicts = max(splits.items(), key=lambda item: mean_reward(item[1]))
        # the general limit is rough, and a small split may lie over it by chance
        if name not in seen.limits:
            split, verdicts = (
                "all splits",
                [verdict for found in splits.values() for verdict in found],
            )
        if name == "every-gold":  # whose length is bounded: of long gold answers it holds some
            there = [
                one for one in verdicts if (one.case.example.gold or "").strip() in one.case.text
            ]
            split = (
                split
                if len(there) == len(verdicts)
                else f"the {len(there)} rows whose gold answer it holds"
            )
            verdicts = there
        reward, limit = mean_reward(verdicts), seen.limits.get(name, HIGH * seen.ceiling)
        totals, clusters = scored_rewards(verdicts)
        # before a run as much as gold is enough, however few the rows are
        like_gold = seen.depth == "load" and bool(seen.golds) and reward >= seen.ceiling
        over = like_gold or is_surely_over(totals, limit, clusters)
        if not over or reward - seen.floor < EXACT:
            # not too high; or it earns what any text does, which is said of the part that pays it
            continue
        of = mean_interval(totals, clusters)
        every_gold = name == "every-gold"
        yield Finding(
            "fatal" if reward >= AS_GOOD * seen.ceiling else "warning",
            "pays-every-gold" if every_gold else "baseline",
            evidence={
                "baseline": name,
                "split": split,
                "mean": of.mean,
                "reward": asdict(of),
                "gold": seen.ceiling if seen.golds else None,
                "limit": limit,
            },
            samples=list_ids(sorted(verdicts, key=lambda one: -one.reward)),
            causes=("found-anywhere", "any-mention")
            if every_gold
            else ("form-without-content", "few-golds", "suits-many"),
        )


@check("reward", name="hostile")
def find_paid_hostile_texts(seen: ScoringRunner) -> Iterator[Finding]:
    """Texts made to break verifiers that earn something."""
    by_text = group_by_key(
        (one.case.text, one)
        for one in seen.kept.get(HOSTILE, ())
        if one.score is not None and one.case.text.strip() != (one.case.example.gold or "").strip()
    )
    earning = {
        text: mean_reward(found)
        for text, found in by_text.items()
        if mean_reward(found) - seen.floor > EARNS
    }
    if earning:
        text = max(earning, key=lambda one: earning[one])
        level: Level = "fatal" if earning[text] - seen.floor > HIGH else "warning"
        yield Finding(
            level,
            evidence={
                "count": len(earning),
                "of": len(by_text),
                "text": quote_text(text),
                "most": earning[text],
                "rewards": {quote_text(one): reward for one, reward in earning.items()},
                "floor": seen.floor,
            },
            samples=list_ids(by_text[text]),
            causes=("unreadable-is-answer", "part-by-default"),
        )


@check("reward", name="pays-anything")
def find_rows_paying_anything(seen: ScoringRunner) -> Iterator[Finding]:
    """Rows that pay a blank answer or nonsense, where others do not."""
    golds = seen.gold_rewards
    tried = [
        *seen.kept.get(ANYTHING, ()),
        *(one for found in seen.baselines.get("blank", {}).values() for one in found),
    ]
    paid: dict[str, CaseVerdict] = {}
    for verdict in tried:
        example, gold = verdict.case.example, golds.get(verdict.case.example.id, 1.0)
        right = (example.gold is not None and not example.gold.strip()) or gold < EARNS
        if not right and verdict.reward >= AS_GOOD * gold:
            paid.setdefault(example.id, verdict)
    rows = {verdict.case.example.id for verdict in tried}
    if paid and len(paid) <= AS_GOOD * len(rows):
        worst = next(iter(paid.values()))
        yield Finding(
            "fatal" if len(paid) > SOME * len(rows) else "warning",
            evidence={
                "rows": list(paid)[:ROWS],
                "count": len(paid),
                "n": len(rows),
                "text": str(worst.case),
                "reward": worst.reward,
            },
            samples=tuple(paid)[:5],
            causes=("row-lacks",),
        )


@check("reward", name="wrong-paid")
def find_paid_wrong_answers(seen: ScoringRunner) -> Iterator[Finding]:
    """Wrong answers that name the gold one and are paid like it."""
    for way, (paid, n) in wrongly_paid(seen).items():
        if len(paid) <= LOSES * n:
            continue
        yield Finding(
            "note" if way == NEGATED else "warning",
            evidence={
                "way": way,
                "count": len(paid),
                "n": n,
                "example": quote_text(paid[0].case.text, 160),
            },
            samples=list_ids(paid),
            causes=("found-anywhere", "any-mention"),
        )


def wrongly_paid(seen: ScoringRunner) -> dict[str, tuple[list[CaseVerdict], int]]:
    """Of each way to name the gold answer in a wrong one: those that earn more than halfway from
    what the wrong answer by itself earns to what gold earns, and how many were tried."""
    golds = seen.gold_rewards
    ways = dict(seen.verdicts_by_way("wrong"))
    alone = {one.case.example.id: one.reward for one in ways.pop(OTHER, ())}
    found = {}
    for way, verdicts in ways.items():
        tried = [
            (one, alone.get(key, 0.0), golds.get(key, 0.0))
            for one in verdicts
            for key in [one.case.example.id]
        ]
        tried = [(one, low, high) for one, low, high in tried if high - low > EARNS]
        found[way] = (
            [one for one, low, high in tried if one.reward > low + HIGH * (high - low) + EXACT],
            len(tried),
        )
    return {way: pair for way, pair in found.items() if pair[1]}


def count_misjudged(seen: ScoringRunner) -> dict[str, tuple[int, int]]:
    """False rejects and false accepts, each with how many texts were tried: right answers written
    otherwise that lose more than `LOSES`, and not of form alone; wrong answers and nonsense that are
    paid like gold ones."""
    golds = seen.gold_rewards
    right = [
        (one, golds.get(one.case.example.id, 0.0))
        for found in seen.verdicts_by_way("writing").values()
        for one in found
    ]
    right = [(one, gold) for one, gold in right if gold]
    wrong = wrongly_paid(seen).values()
    nonsense = [(one, golds.get(one.case.example.id, 0.0)) for one in seen.kept.get(ANYTHING, ())]
    nonsense = [(one, gold) for one, gold in nonsense if gold > EARNS]
    form = seen.lost_form
    refused = sum(
        one.reward < (1 - LOSES) * gold - EXACT and id(one) not in form for one, gold in right
    )
    paid = sum(len(found) for found, _ in wrong) + sum(
        one.reward >= AS_GOOD * gold for one, gold in nonsense
    )
    table = {"right answers refused": (refused, len(right))}
    table["wrong answers paid"] = (paid, sum(n for _, n in wrong) + len(nonsense))
    return {what: pair for what, pair in table.items() if pair[1]}


@check("reward", name="marks")
def find_paid_marks(seen: ScoringRunner) -> Iterator[Finding]:
    """A part that is called form and pays damaged marks in full."""
    golds = {one.case.example.id: one.score.parts for one in seen.golds if one.score is not None}
    names = sorted({name for parts in golds.values() for name in parts if FORM.search(name)})
    blind: dict[str, list[tuple[str, CaseVerdict]]] = defaultdict(list)
    for way, verdicts in seen.verdicts_by_way("marks").items():
        for name in names:
            pairs = [(one, golds.get(one.case.example.id, {}).get(name)) for one in verdicts]
            tried = [
                (one, (one.score.parts.get(name) or 0.0) - gold)
                for one, gold in pairs
                if one.score and gold
            ]
            paid = [one for one, more in tried if more >= -EXACT]
            if tried and len(paid) > HIGH * len(tried):
                blind[name].append((way, paid[0]))
    for name, found in blind.items():
        yield Finding(
            "warning" if UNCLOSED in dict(found) else "note",
            evidence={
                "part": name,
                "ways": [way for way, _ in found],
                "example": quote_text(found[0][1].case.text, 120),
            },
            samples=list_ids([one for _, one in found]),
            causes=("marks-not-counted",),
        )


@check("reward", name="writing")
def find_unpaid_writings(seen: ScoringRunner) -> Iterator[Finding]:
    """Ways to write the gold value that lose too much."""
    ways = seen.measure_writings()
    enough = min(WRITTEN_ENOUGH, len(seen.golds))
    lost = {
        way: found["loss"]
        for way, found in ways.items()
        if found["loss"] > LOSES + EXACT and found["n"] >= enough
    }
    if not lost:
        return
    minor = lost.keys() <= {WHOLE_FLOAT}
    comma = seen.commas and lost.get(DECIMAL_COMMA, 0.0) > HIGH
    worst = DECIMAL_COMMA if comma else max(lost, key=lambda way: lost[way])
    by_loss = sorted(lost.items(), key=lambda item: -item[1])
    yield Finding(
        "fatal" if comma else "note" if minor else "warning",
        evidence={
            "over": LOSES,
            "lost": [f"{way} {loss:.0%}" for way, loss in by_loss[:WORST]],
            "more": len(lost) - WORST if len(lost) > WORST else None,
            **ways,
        },
        samples=list_ids(seen.verdicts_by_way("writing")[worst]),
        causes=("strict-parser", "letter-by-letter"),
    )


@check("reward", name="readings")
def find_unequal_readings(seen: ScoringRunner) -> Iterator[Finding]:
    """A lenient reading that pays less than the strict one, or readings that differ on gold
    answers."""
    both = [
        (one, score) for one, score in seen.scored if {"strict", "lenient"} <= score.readings.keys()
    ]
    if worse := [
        pair for pair in both if pair[1].readings["lenient"] < pair[1].readings["strict"] - EXACT
    ]:
        verdict, score = worse[0]
        yield Finding(
            "fatal",
            "lenient-pays-less",
            evidence={
                "count": len(worse),
                "of": len(both),
                "text": str(verdict.case),
                "lenient": score.readings["lenient"],
                "strict": score.readings["strict"],
            },
            samples=list_ids([one for one, _ in worse]),
            causes=("lenient-changes",),
        )
    golds = {id(one) for one in seen.golds}
    differ = [
        one for one, score in both if score.readings["lenient"] - score.readings["strict"] > EXACT
    ]
    if apart := [one for one in differ if id(one) in golds]:
        evidence = {"count": len(apart), "of": len(golds)}
        yield Finding("warning", "gold-strict", evidence=evidence, samples=list_ids(apart))


@check("reward", name="label", needs=("find_label",))
def find_labels(seen: ScoringRunner) -> Iterator[Finding]:
    """Gold answers that are labels, which explains what they lack."""
    if (found := seen.label) is not None:
        level: Level = "fatal" if found.gold <= AS_GOOD * found.earns + EXACT else "warning"
        evidence = {
            "gold": found.gold,
            "template": found.template,
            "earns": found.earns,
            "cause": found.cause,
            "fix": found.fix,
        }
        yield Finding(level, evidence=evidence, samples=list_ids(seen.golds))


@check("reward", name="form", needs=("explain_misread",))
def find_unread_form(seen: ScoringRunner) -> Iterator[Finding]:
    """Completions in another form than a function reads."""
    if seen.misread is not None:
        evidence = {"cause": seen.misread[0], "fix": seen.misread[1]}
        yield Finding("fatal", evidence=evidence, samples=list_ids(seen.golds))


@check("reward", name="range", needs=("declare_ranges",))
def find_undeclared_ranges(seen: ScoringRunner) -> Iterator[Finding]:
    """Ranges that nobody declared."""
    fix, stops = seen.task.declare_ranges()
    if fix:
        level: Level = "fatal" if stops and seen.depth == "run" else "note"
        yield Finding(level, evidence={"fix": fix})


@check("reward", name="rows", needs=("describe_rows",))
def find_row_notes(seen: ScoringRunner) -> Iterator[Finding]:
    """What is to be known of the rows, and a form that no prompt asks for."""
    for what in seen.notes:
        yield Finding("note", "rows", evidence={"cause": what})


@check("reward", name="prints")
def find_prints(seen: ScoringRunner) -> Iterator[Finding]:
    """A verifier that prints."""
    if count := seen.printed.count("\n"):
        first = seen.printed.split("\n")[0][:80]
        yield Finding("note", "prints", evidence={"lines": count, "first": first})


@check("reward", name="elsewhere")
def find_changed_verdicts(seen: ScoringRunner) -> Iterator[Finding]:
    """Verdicts that come out otherwise the second time, on another thread, in another process and
    the like."""
    for found in seen.changed:
        verdict = found.verdicts[0]
        late, again = found.then == LATE, found.where == AGAIN
        level: Level = "note" if late else "warning"
        yield Finding(
            "fatal" if found.where in {AGAIN, GROUPED} else level,
            "repeat" if again else "late" if late else "alarm" if found.alarm else "elsewhere",
            check="repeat" if again else "",
            evidence={
                "where": found.where,
                "count": len(found.verdicts),
                "of": found.of,
                "text": str(verdict.case),
                "reward": verdict.reward,
                "then": found.then,
            },
            samples=list_ids(found.verdicts),
            causes=() if late else ("alarm-signal",) if found.alarm else CAUSES[found.where],
        )


CAUSES = {
    AGAIN: ("random", "same-call", "threads"),
    THREAD: ("thread-state", "thread-connection"),
    LOOP: ("own-loop",),
    GROUPED: ("same-call", "cache-by-prompt"),
    TOGETHER: ("first-row", "cache"),
    PROCESS: ("global", "hash-order", "judged-before"),
    DIRECTORY: ("relative-file",),
}
"""Of each condition: what makes a reward come out otherwise there."""


@check("reward", name="cheat")
def find_paid_cheat(seen: ScoringRunner) -> Iterator[Finding]:
    """A cheat that earns too much, and more than the baselines, which are named already."""
    found = seen.cheat
    if found is None:
        return
    known = max(
        (mean_reward(one) for splits in seen.baselines.values() for one in splits.values()),
        default=0.0,
    )
    if found.reward <= max(HIGH * seen.ceiling, known + EARNS) or found.reward - seen.floor < EXACT:
        return
    level: Level = "fatal" if found.reward >= AS_GOOD * seen.ceiling else "warning"
    yield Finding(
        level,
        evidence={
            "reward": found.reward,
            "n": len(found.rewards),
            "gold": seen.ceiling,
            "best baseline": known,
            "rule": found.rule,
            "example": quote_text(found.rule, 200),
        },
        samples=(found.example,),
        causes=("writable",),
    )


BASIC: tuple[Check[ScoringRunner], ...] = (
    find_raises,
    find_slow_verdicts,
    find_changed_verdicts,
    find_undeclared_ranges,
    find_row_notes,
    find_prints,
)
CHECKS = (
    *(
        find_unread_form,
        *BASIC,
        find_labels,
        find_unpaid_gold,
        find_paid_baselines,
        find_paid_cheat,
        find_unpaid_texts,
        find_bad_parts,
        find_paid_length,
        find_opposed_parts,
    ),
    *(
        find_paid_hostile_texts,
        find_rows_paying_anything,
        find_paid_wrong_answers,
        find_paid_marks,
        find_unpaid_writings,
        find_unequal_readings,
    ),
)
LOAD = (
    *(
        find_raises,
        find_slow_verdicts,
        find_changed_verdicts,
        find_unpaid_texts,
        find_bad_parts,
        find_labels,
        find_unpaid_gold,
    ),
    find_paid_baselines,
)
"""Of a reward before a run: what would make the result false, or be learnt in place of the task."""


def checks_for(seen: ScoringRunner) -> Sequence[Check[ScoringRunner]]:
    """What can be asked. Of a reward that comes out otherwise each time nothing else is said: every
    figure would be chance. Nor of one whose sign is wrong: every figure would be turned. Gold
    answers that are labels, or in a form that is not read, explain what they lack."""
    if seen.turned:
        return (find_unpaid_gold,)
    if seen.misread is not None:
        return (find_unread_form,)
    if any(one.where == AGAIN and 2 * len(one.verdicts) > one.of for one in seen.changed):
        return BASIC
    if seen.depth == "load":
        return LOAD
    return (*BASIC, find_labels) if seen.label is not None and seen.label.grave else CHECKS
