"""The checks of an audit: functions from what was judged to findings."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np

from plumbline.checks.audit.other_conditions import DIRECTORY, GROUPED, LATE, PROCESS, THREAD
from plumbline.checks.audit.scoring_runner import (
    AGAIN,
    ANYTHING,
    DAMAGED,
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
from plumbline.evaluation.statistics import is_surely_over, mean_interval
from plumbline.tasks.cases import OUTAGE, READ

EXACT = 1e-6
"""By what a reward of 1 may fall short."""
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
OPPOSED, FEW = -0.5, 20
"""Correlation of two parts from which on they are opposed, and the verdicts that it needs."""
BOTH = 0.9
"""Two parts that some text raises to this both do not contradict one another."""
FLOOR = 0.05
"""What a part may pay for any text."""
RANGE = "task.options.range"
"""In the advice of a reward outside of its range."""
CONTENT = (
    "let form take away instead of pay, and measure content; or raise the limit, if it is that of "
    "the data"
)
ANYWHERE = (
    "the gold answer is looked for anywhere in the text",
    "any mention of it counts, not the last one",
)
AT_ONE_PLACE = "read the answer at one place, such as the last one that is marked as the answer"
SOME, ROWS = 0.05, 50
"""Share of the rows that may pay anything before that is fatal, and how many are listed."""
FORM = re.compile(r"form|tag|xml|mark|struct|layout|think", re.IGNORECASE)
"""Names of parts that pay for form."""
SLOW, TIMES = 2.0, 50
"""Seconds, and times the median, that a verdict on a hostile text may take."""
LONG = 600.0
"""Seconds of judging in a run from which on they are worth a word."""


@check("reward", name="raises")
def find_raises(seen: ScoringRunner) -> Iterator[Finding]:
    """A verifier that raises, or returns what is no reward: one finding for each thing to do about
    it."""
    by_fix: dict[str, list[CaseVerdict]] = defaultdict(list)
    for verdict in seen.all_verdicts:
        if verdict.failure and not verdict.hung:
            by_fix[RANGE if RANGE in verdict.fix else verdict.fix].append(verdict)
    for fix, verdicts in by_fix.items():
        counts = dict(Counter(verdict.kind for verdict in verdicts).most_common())
        named = ", ".join(f"{kind} {count}" for kind, count in counts.items())
        what = (
            f"{len(verdicts)} of {len(seen.all_verdicts)} texts got no reward ({named}): "
            f"{verdicts[0].failure}"
        )
        evidence = {"count": len(verdicts), "of": len(seen.all_verdicts), "raised": counts}
        cause = "the verifier takes a text for granted that a model need not write"
        if fix == RANGE:
            cause = (
                "the range is another one than the recipe says; a run stops at the first such "
                "number"
            )
        elif fix == OUTAGE:
            cause = "what the verifier asks does not answer"
        elif fix.startswith(READ):
            cause = "the verifier was written for rows in another form"
        samples, fix = list_ids(verdicts), verdicts[0].fix
        yield Finding("fatal", what, evidence=evidence, samples=samples, causes=(cause,), fix=fix)


@check("reward", name="slow")
def find_slow_verdicts(seen: ScoringRunner) -> Iterator[Finding]:
    """A verdict that does not come, one that a text makes slow, and a run's that take their
    time."""
    if hung := [verdict for verdict in seen.all_verdicts if verdict.hung]:
        what, fix = (
            f"{hung[0].failure}{'; the audit stopped there' if len(hung) > 1 else ''}",
            hung[0].fix,
        )
        evidence: dict[str, float] = {"count": len(hung), "limit": LIMIT}
        causes = (
            "a regular expression that backtracks",
            "a loop that the text decides on",
            "a wait for something",
        )
        yield Finding(
            "fatal", what, evidence=evidence, samples=list_ids(hung), causes=causes, fix=fix
        )
    usual = (
        float(np.median([one.seconds for one in seen.all_verdicts])) if seen.all_verdicts else 0.0
    )
    late = [
        one
        for one in seen.kept.get(HOSTILE, ())
        if not one.hung and one.seconds > max(SLOW, TIMES * usual)
    ]
    if late:
        worst = max(late, key=lambda one: one.seconds)
        what = (
            f"judging {worst.case} took {worst.seconds:.1f} s, and the median verdict {usual:.2g} s"
        )
        evidence = {"seconds": worst.seconds, "median": usual}
        cause = "work that grows with more than the text's length"
        fix = "bound what the verifier does for one text"
        yield Finding(
            "warning", what, evidence=evidence, samples=list_ids(late), causes=(cause,), fix=fix
        )
    each = seen.seconds / max(1, seen.count)
    seconds = each * seen.planned / max(1, seen.task.judges)
    if seconds >= LONG:
        what = (
            f"a verdict takes {each:.2g} s, so the {seen.planned:,} verdicts of this run take "
            f"{seconds / 3600:.1f} hours"
        )
        fix = (
            "make it faster, or, where it waits for something, let more threads judge (task jsonl: "
            "task.options.judges)"
        )
        evidence = {"seconds": seconds, "each": each}
        yield Finding("warning", what, check="long", evidence=evidence, fix=fix)


@check("reward", name="unpaid", needs=("explain_unpaid",))
def find_unpaid_texts(seen: ScoringRunner) -> Iterator[Finding]:
    """A reward, and before a run a part, that pays no text where likely answers are tried."""
    paid = seen.out_of_range or any(score.total for _, score in seen.scored)
    values, dead = seen.values(), list[str]()
    if paid and seen.depth == "load":
        dead = [name for name in seen.task.answer_parts if not any(values.get(name, [1]))]
    if any(one.score is not None for one in seen.golds) or (paid and not dead):
        return
    if what := seen.task.explain_unpaid(len(seen.scored), dead):
        yield Finding("fatal", what, samples=list_ids(seen.all_verdicts))


@check("reward", name="parts")
def find_bad_parts(seen: ScoringRunner) -> Iterator[Finding]:
    """Parts that nothing reaches, that never vary, or that pay every text."""
    golden = any(one.score is not None for one in seen.golds)
    for name, values in seen.parts().items():
        known = [value for _, value in values if value is not None]
        evidence: dict[str, Any] = {"part": name, "texts": len(values)}
        if not known:
            what = (
                f"the part {name} was None for all {len(values)} texts: it is no part of this "
                "reward"
            )
            yield Finding("note", what, check="part-silent", evidence=evidence)
            continue
        least, most = min(known), max(known)
        evidence = {"part": name, "least": least, "most": most, "texts": len(known)}
        if most < 1 - EXACT and not golden:
            what = (
                f"no text tried raised the part {name} over {most:.2f}, and no gold answer says "
                "whether one can"
            )
            yield Finding("note", what, check="part-unreached", evidence=evidence)
        elif name in seen.task.penalties and most - least < EXACT:
            what = f"the part {name} took nothing away from any of {len(known)} texts"
            yield Finding("note", what, check="part-silent", evidence=evidence)
        elif most == 0 and seen.label is None:
            what = f"the part {name} was 0 for all {len(known)} texts, gold answers included"
            causes = (
                "it looks for what no answer has",
                "it reads the wrong column, or another unit or case",
            )
            fix = "judge a gold answer by hand and see why the part is 0; or take it out"
            yield Finding(
                "fatal", what, check="part-dead", evidence=evidence, causes=causes, fix=fix
            )
        elif most > 0 and most - least < EXACT:
            what = (
                f"the part {name} was {most:.3g} for all {len(known)} texts, blank and hostile "
                "ones included: it "
            )
            what += "teaches nothing"
            cause, fix = (
                "it does not look at the answer",
                "make it depend on the answer, or take it out",
            )
            yield Finding(
                "warning", what, check="part-constant", evidence=evidence, causes=(cause,), fix=fix
            )
        elif least > FLOOR and name not in seen.task.form:
            worst = min(
                (pair for pair in values if pair[1] is not None), key=lambda pair: pair[1] or 0.0
            )[0]
            what = (
                f"the part {name} pays at least {least:.2f} for every text, for example "
                f"{worst.case}"
            )
            fix = "give 0 to an answer that has nothing of it"
            yield Finding("warning", what, check="part-floor", evidence=evidence, fix=fix)


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
            what = (
                f"the parts {first} and {second} contradict each other: over {len(among)} gold and "
                "damaged answers "
            )
            what += f"they correlate by {correlation:.2f}; none has over {best:.2f} of both"
            evidence = {
                "parts": [first, second],
                "correlation": correlation,
                "n": len(among),
                "best": best,
            }
            cause = "one pays for what the other punishes"
            fix = "keep one of them, or make the gold answer the best answer for both"
            level: Level = "fatal" if best < HIGH + EXACT else "warning"
            yield Finding(level, what, evidence=evidence, causes=(cause,), fix=fix)


@check("reward", name="oracle")
def find_unpaid_gold(seen: ScoringRunner) -> Iterator[Finding]:
    """Gold answers that earn less than 1, but for parts that are named already, and for labels."""
    # else none was tried yet
    if not seen.golds and not any(verdict.hung for verdict in seen.all_verdicts):
        what = (
            "there are no gold answers: no ceiling was checked, no damaged answers and no other "
            "ways to write one"
        )
        yield Finding(
            "note", what, check="no-oracle", fix="give gold answers (task jsonl: task.options.gold)"
        )
    scored = [(one, one.score) for one in seen.golds if one.score is not None]
    if not scored or seen.label is not None:
        return  # without scores it is said where it is said why
    named = {
        one.evidence["part"]
        for one in find_bad_parts(seen)
        if one.check in {"part-dead", "part-constant"}
    }
    named |= {part for one in find_opposed_parts(seen) for part in one.evidence["parts"]}
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
        short_of = (
            f"; short of {', '.join(f'{name} ({count})' for name, count in lacking.items())}"
            if lacking
            else ""
        )
        what = (
            f"{len(low)} of {len(scored)} gold answers earn less than 1 (mean {ceiling:.3f}, least "
        )
        what += f"{score.total:.3f}: {worst.case}){short_of}"
        yield Finding(
            "fatal" if score.total <= AS_GOOD + EXACT else "warning",
            what,
            evidence={
                "n": len(scored),
                "low": len(low),
                "mean": ceiling,
                "least": score.total,
                "parts": dict(lacking),
            },
            samples=list_ids([one for one, _ in unexplained]),
            causes=(
                "the verifier does not read what the gold answers are written like",
                "a wrong gold answer",
                "the reward's range is not 0 to 1 (task jsonl: task.options.range)",
            ),
            fix="look at the first sample: either its gold answer or the verifier is wrong",
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
        if not is_surely_over(totals, limit, clusters) or reward - seen.floor < EXACT:
            # not too high; or it earns what any text does, which is said of the part that pays it
            continue
        of = mean_interval(totals, clusters)
        worth = (
            f"of the {seen.ceiling:.3f} that gold answers earn"
            if seen.golds
            else "where gold answers are unknown"
        )
        what = (
            f"the baseline {name} earns {of:.3f} {worth} ({split}), and should earn at most "
            f"{limit:.3f}: such "
        )
        what += "answers will be learnt"
        what += " (it writes all gold answers one after the other)" if name == "every-gold" else ""
        causes = (
            "form is paid for without content",
            "few different gold answers",
            "an answer that suits many",
        )
        yield Finding(
            "fatal" if reward >= AS_GOOD * seen.ceiling else "warning",
            what,
            evidence={"baseline": name, "split": split, "reward": asdict(of), "limit": limit},
            samples=list_ids(sorted(verdicts, key=lambda one: -one.reward)),
            causes=ANYWHERE if name == "every-gold" else causes,
            fix=AT_ONE_PLACE if name == "every-gold" else CONTENT,
        )


@check("reward", name="hostile")
def find_paid_hostile_texts(seen: ScoringRunner) -> Iterator[Finding]:
    """Texts made to break verifiers that earn something."""
    by_text: dict[str, list[CaseVerdict]] = defaultdict(list)
    for verdict in seen.kept.get(HOSTILE, ()):
        if (
            verdict.score is not None
            and verdict.case.text.strip() != (verdict.case.example.gold or "").strip()
        ):
            by_text[verdict.case.text].append(verdict)
    earning = {
        text: mean_reward(found)
        for text, found in by_text.items()
        if mean_reward(found) - seen.floor > EARNS
    }
    if earning:
        text = max(earning, key=lambda one: earning[one])
        level: Level = "fatal" if earning[text] - seen.floor > HIGH else "warning"
        what = (
            f"{len(earning)} of {len(by_text)} hostile texts earn something, most {quote_text(text)}: "
            f"{earning[text]:.3f}"
        )
        evidence = {
            "rewards": {quote_text(one): reward for one, reward in earning.items()},
            "floor": seen.floor,
        }
        causes = (
            "what cannot be read is taken for an answer",
            "an empty or broken answer gets a part by default",
        )
        fix, samples = "give nothing to a text that is no answer", list_ids(by_text[text])
        yield Finding(level, what, evidence=evidence, samples=samples, causes=causes, fix=fix)


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
        what = (
            f"{len(paid)} of {len(rows)} rows pay a blank answer or nonsense in full, and the "
            "others do not: "
        )
        what += f"{worst.case} earns {worst.reward:.3f}"
        evidence = {"rows": list(paid)[:ROWS], "count": len(paid), "n": len(rows)}
        causes = ("a row without tests, or whose gold answer is empty or cannot be read",)
        fix = (
            "give these rows what they lack, or leave them out; a missing gold answer should "
            "raise, not pay"
        )
        level: Level = "fatal" if len(paid) > SOME * len(rows) else "warning"
        yield Finding(
            level, what, evidence=evidence, samples=tuple(paid)[:5], causes=causes, fix=fix
        )


@check("reward", name="wrong-paid")
def find_paid_wrong_answers(seen: ScoringRunner) -> Iterator[Finding]:
    """Wrong answers that name the gold one and are paid like it."""
    for way, (paid, n) in wrongly_paid(seen).items():
        if len(paid) <= LOSES * n:
            continue
        what = (
            f"{way} is paid like the gold answer, {len(paid)} of {n} times: "
            f"{quote_text(paid[0].case.text, 160)}"
        )
        evidence = {"way": way, "count": len(paid), "n": n}
        level: Level = "note" if way == NEGATED else "warning"
        yield Finding(
            level,
            what,
            evidence=evidence,
            samples=list_ids(paid),
            causes=ANYWHERE,
            fix=AT_ONE_PLACE,
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
    otherwise that lose more than `LOSES`, and wrong answers and nonsense that are paid like gold
    ones."""
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
    refused = sum(one.reward < (1 - LOSES) * gold - EXACT for one, gold in right)
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
        what = f"the part {name} pays {' and '.join(way for way, _ in found)} like a whole form: "
        what += quote_text(found[0][1].case.text, 120)
        evidence = {"part": name, "ways": [way for way, _ in found]}
        causes = ("a pattern that looks for the marks and does not count them",)
        fix, samples = (
            "count each mark once, and let no mark stand inside of another",
            list_ids([one for _, one in found]),
        )
        level: Level = "warning" if UNCLOSED in dict(found) else "note"
        yield Finding(level, what, evidence=evidence, samples=samples, causes=causes, fix=fix)


@check("reward", name="writing")
def find_unpaid_writings(seen: ScoringRunner) -> Iterator[Finding]:
    """Ways to write the gold value that lose too much."""
    ways = seen.measure_writings()
    lost = {way: found["loss"] for way, found in ways.items() if found["loss"] > LOSES + EXACT}
    if not lost:
        return
    minor = lost.keys() <= {WHOLE_FLOAT}
    comma = seen.commas and lost.get(DECIMAL_COMMA, 0.0) > HIGH
    named = ", ".join(
        f"{way} {loss:.0%}" for way, loss in sorted(lost.items(), key=lambda item: -item[1])
    )
    worst = DECIMAL_COMMA if comma else max(lost, key=lambda way: lost[way])
    what = (
        f"a gold answer loses over {LOSES:.0%} of its reward when it is written otherwise: {named}"
    )
    causes = ("a strict parser", "texts compared letter by letter")
    fix = (
        "read leniently (plumbline.tasks.text has lenient_json.read_json and numbers.read_number), "
        "and let form "
    )
    fix += "take away a share of its own; or ask for the form in the prompt, if it matters"
    level: Level = "fatal" if comma else "note" if minor else "warning"
    yield Finding(
        level,
        what,
        evidence=ways,
        samples=list_ids(seen.verdicts_by_way("writing")[worst]),
        causes=causes,
        fix=fix,
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
        what = (
            f"{len(worse)} of {len(both)} texts earn less when they are read leniently, for "
            f"example {verdict.case} "
        )
        what += f"({score.readings['lenient']:.3f}, strictly {score.readings['strict']:.3f})"
        evidence = {"count": len(worse), "of": len(both)}
        causes = ("the lenient reader changes what the strict one can read",)
        fix, samples = (
            "read strictly first, and repair only what cannot be read so",
            list_ids([one for one, _ in worse]),
        )
        yield Finding("fatal", what, evidence=evidence, samples=samples, causes=causes, fix=fix)
    golds = {id(one) for one in seen.golds}
    differ = [
        one for one, score in both if score.readings["lenient"] - score.readings["strict"] > EXACT
    ]
    if apart := [one for one in differ if id(one) in golds]:
        what = (
            f"{len(apart)} gold answers earn less when they are read strictly: they are not well "
            "written themselves"
        )
        evidence = {"count": len(apart), "of": len(golds)}
        fix = "write the gold answers as a strict reader wants them: SFT teaches their form"
        yield Finding("warning", what, evidence=evidence, samples=list_ids(apart), fix=fix)


@check("reward", name="label", needs=("find_label",))
def find_labels(seen: ScoringRunner) -> Iterator[Finding]:
    """Gold answers that are labels, which explains what they lack."""
    if (found := seen.label) is not None:
        level: Level = "fatal" if found.gold <= AS_GOOD * found.earns + EXACT else "warning"
        evidence = {"gold": found.gold, "template": found.template, "earns": found.earns}
        samples = list_ids(seen.golds)
        yield Finding(level, found.cause, evidence=evidence, samples=samples, fix=found.fix)


@check("reward", name="form", needs=("explain_misread",))
def find_unread_form(seen: ScoringRunner) -> Iterator[Finding]:
    """Completions in another form than a function reads."""
    if seen.misread is not None:
        yield Finding("fatal", seen.misread[0], samples=list_ids(seen.golds), fix=seen.misread[1])


@check("reward", name="range", needs=("declare_ranges",))
def find_undeclared_ranges(seen: ScoringRunner) -> Iterator[Finding]:
    """Ranges that nobody declared."""
    if fix := seen.task.declare_ranges():
        what = (
            "the functions' ranges are not declared; these figures take them from what gold "
            "answers, baselines and "
        )
        yield Finding("note", f"{what}hostile texts were given, and a run takes [0, 1]", fix=fix)


@check("reward", name="rows", needs=("describe_rows",))
def find_row_notes(seen: ScoringRunner) -> Iterator[Finding]:
    """What is to be known of the rows, and a form that no prompt asks for."""
    for what in seen.notes:
        yield Finding("note", what)


@check("reward", name="prints")
def find_prints(seen: ScoringRunner) -> Iterator[Finding]:
    """A verifier that prints."""
    if count := seen.printed.count("\n"):
        first = seen.printed.split("\n")[0][:80]
        yield Finding(
            "note", f"the verifier printed {count:,} lines, first {first!r}: a run's log would too"
        )


ALONE = (
    "let a reward depend on the example and the answer alone: no random numbers, no clock, no "
    "other answers; and on no thread, where task.options.judges is set"
)


@check("reward", name="elsewhere")
def find_changed_verdicts(seen: ScoringRunner) -> Iterator[Finding]:
    """Verdicts that come out otherwise the second time, on another thread, in another process and
    the like."""
    for found in seen.changed:
        (called, causes), fix, verdict = CONDITIONS[found.where], ALONE, found.verdicts[0]
        what = (
            f"{len(found.verdicts)} of {found.of} texts were judged otherwise {found.where}: "
            f"{verdict.case} got "
        )
        what += f"{verdict.reward:.4f}, then {found.then}. {called}"
        if found.alarm:
            causes = (
                (
                    "an alarm (signal.alarm, SIGALRM), which works on the main thread of a process "
                    "alone"
                ),
            )
            fix = (
                "limit the time without signals (a process that is ended, or the library's own "
                "option: math_verify "
            )
            fix += (
                "takes parsing_timeout=None and timeout_seconds=None), and let errors be raised, "
                "not scored"
            )
        level: Level = "note" if found.then == LATE else "warning"
        yield Finding(
            "fatal" if found.where in {AGAIN, GROUPED} else level,
            what,
            check="repeat" if found.where == AGAIN else "",
            evidence={"where": found.where, "count": len(found.verdicts), "of": found.of},
            samples=list_ids(found.verdicts),
            causes=causes,
            fix=fix,
        )


CONDITIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    AGAIN: (
        "A difference between two evaluations could be the reward's own.",
        ("random numbers, a clock, or what was judged before", "other answers", "threads"),
    ),
    THREAD: (
        "Trainers call rewards on other threads.",
        ("state of a thread", "a connection that belongs to a thread"),
    ),
    "while an event loop runs": (
        "Trainers and notebooks call rewards while an event loop runs.",
        ("asyncio.run or run_until_complete inside of the function",),
    ),
    GROUPED: (
        "Trainers judge all answers to a prompt in one call.",
        ("other answers of the same call", "a cache by prompt"),
    ),
    "in one call with answers to other prompts": (
        "TRL judges answers to several prompts in one call.",
        ("the first row's columns are taken for all (answer[0])", "a cache"),
    ),
    PROCESS: (
        "Trainers call rewards in other processes.",
        (
            "a global that something else set",
            "hash() or the order of a set, which differ from process to process",
            "what was judged before, or standard input",
        ),
    ),
    DIRECTORY: (
        "Trainers start workers in other directories.",
        ("a file that is named relative to the working directory",),
    ),
}
"""Of each condition: who calls a reward so, and what makes it come out otherwise."""


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
    what = (
        f"an answer that knows nothing earns {found.reward:.3f} (n = {len(found.rewards)}; gold "
        "answers "
    )
    what += f"{seen.ceiling:.3f}, the best baseline {known:.3f}): {quote_text(found.rule, 200)}"
    evidence = {
        "reward": found.reward,
        "n": len(found.rewards),
        "best baseline": known,
        "rule": found.rule,
    }
    causes = ("the reward looks for something that can be written without knowing",)
    fix = "make this answer a baseline of the task, and let the reward see what it lacks"
    yield Finding(level, what, evidence=evidence, samples=(found.example,), causes=causes, fix=fix)


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
    figure would be chance. Gold answers that are labels, or in a form that is not read, explain
    what they lack."""
    if seen.misread is not None:
        return (find_unread_form,)
    if seen.depth == "load":
        return LOAD
    if any(one.where == AGAIN and 2 * len(one.verdicts) > one.of for one in seen.changed):
        return BASIC
    return (*BASIC, find_labels) if seen.label is not None and seen.label.grave else CHECKS
