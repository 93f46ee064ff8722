"""What a customer wants to say, decided before any word is chosen.

A plan is a list of points (topics of complaint, praise, remarks, a recommendation). It depends on the score and on the
order's facts: nobody complains about a late delivery that was on time, praises what has not come, or praises and
complains about the same thing.
"""

from dataclasses import dataclass

from plumbline_commerce.database.banks import ironic_bank
from plumbline_commerce.database.dice import Dice, Weighted
from plumbline_commerce.database.facts import Facts
from plumbline_commerce.database.gold import TOPICS, Said

PRAISES = ("praise_product", "praise_delivery", "praise_price", "praise_service", "praise_general")


@dataclass(frozen=True, slots=True)
class Plan:
    """Points in the order in which the text makes them, and its tone."""

    points: tuple[str, ...]
    """Topics of complaint (keys of `gold.TOPICS`), `PRAISES`, or displeased, lukewarm, neutral, recommends,
    refuses."""
    strong: bool
    ironic: bool = False

    def said(self) -> Said:
        """What a text that makes these points says."""
        recommends = {"recommends": True, "refuses": False}
        return Said(
            complaints=tuple(dict.fromkeys(point for point in self.points if point in TOPICS)),
            praised=any(point in PRAISES for point in self.points),
            displeased="displeased" in self.points,
            recommends=next((recommends[point] for point in self.points if point in recommends), None),
            ironic=self.ironic,
        )


_FEELINGS = {
    1: Weighted([("bad", 0.955), ("mixed", 0.02), ("neutral", 0.005), ("good", 0.02)]),
    2: Weighted([("bad", 0.82), ("mixed", 0.13), ("neutral", 0.04), ("good", 0.01)]),
    3: Weighted([("bad", 0.32), ("mixed", 0.36), ("neutral", 0.20), ("good", 0.12)]),
    4: Weighted([("bad", 0.01), ("mixed", 0.15), ("neutral", 0.06), ("good", 0.78)]),
    5: Weighted([("bad", 0.004), ("mixed", 0.021), ("neutral", 0.015), ("good", 0.96)]),
}
"""What a review of each score feels like. The few that contradict their score are as in real data."""
_PENDING_FEELINGS = {1: 0.99, 2: 0.98, 3: 0.9, 4: 0.6, 5: 0.45}
"""Chance of a complaint where nothing has come."""

_TOPICS = {
    "late": Weighted([("late", 0.86), ("defective", 0.03), ("wrong", 0.02), ("service", 0.035), ("price", 0.03),
                      ("", 0.025)]),
    "nothing": Weighted([("missing", 0.93), ("service", 0.045), ("", 0.025)]),
    "several": Weighted([("missing", 0.62), ("defective", 0.09), ("wrong", 0.08), ("service", 0.07), ("price", 0.09),
                         ("", 0.05)]),
    "single": Weighted([("defective", 0.13), ("wrong", 0.105), ("service", 0.26), ("price", 0.36), ("", 0.145)]),
}  # fmt: skip
"""The main complaint by experience; "" is displeasure without a topic."""
_ALSO = {
    "late": Weighted([("service", 5), ("defective", 1.5), ("wrong", 1), ("price", 2)]),
    "missing": Weighted([("service", 8), ("price", 1)]),
    "defective": Weighted([("service", 5), ("price", 3)]),
    "wrong": Weighted([("service", 5), ("price", 2), ("defective", 1.5)]),
    "service": Weighted([("defective", 3), ("wrong", 2), ("price", 3)]),
    "price": Weighted([("defective", 3), ("service", 3)]),
}
"""What else is complained about."""
_ALSO_SHARE = {1: 0.27, 2: 0.22, 3: 0.15, 4: 0.03, 5: 0.03}
_PRAISED = {
    "praise_product": 0.46,
    "praise_delivery": 0.40,
    "praise_general": 0.26,
    "praise_service": 0.10,
    "praise_price": 0.10,
}
_STRONG_BAD = {1: 0.45, 2: 0.22, 3: 0.06, 4: 0.02, 5: 0.02}
_STRONG_GOOD = {1: 0.3, 2: 0.2, 3: 0.15, 4: 0.25, 5: 0.62}


def draw_plan(dice: Dice, facts: Facts, score: int) -> Plan:
    """What a customer with this order and this score says."""
    if facts.received:
        feeling = dice.weighted(_FEELINGS[score])
    else:
        feeling = "bad" if dice.chance(_PENDING_FEELINGS[score]) else "good"
    if feeling == "bad":
        return _bad(dice, facts, score)
    if feeling == "mixed":
        return _mixed(dice, facts, score)
    if feeling == "neutral":
        return _neutral(dice)
    return _good(dice, facts, score)


def _main_complaint(dice: Dice, facts: Facts) -> str:
    if not facts.received:
        return dice.weighted(_TOPICS["nothing"])
    if facts.late:
        return dice.weighted(_TOPICS["late"])
    topic = dice.weighted(_TOPICS["several" if facts.items > 1 else "single"])
    # Dear freight invites the complaint; where it is cheap, half of those who would complain do so about the product.
    if topic == "price" and facts.freight and facts.value and facts.freight < 0.12 * facts.value and dice.chance(0.5):
        return "defective"
    return topic


def _fits(topic: str, facts: Facts) -> bool:
    """Whether a further complaint agrees with the facts."""
    if topic in ("defective", "wrong"):
        return facts.received
    return topic != "price" or facts.value is not None


def _bad(dice: Dice, facts: Facts, score: int) -> Plan:
    main = _main_complaint(dice, facts)
    strong = dice.chance(_STRONG_BAD[score])
    if not main:
        alone = dice.random()
        if alone < 0.25:
            return Plan(("refuses",), strong)
        return Plan(("displeased", "refuses") if alone < 0.5 else ("displeased",), strong)
    points = [main]
    ironic = dice.chance(0.075) and bool(ironic_bank(main, facts))
    if dice.chance(_ALSO_SHARE[score]):
        also = dice.weighted(_ALSO[main])
        if _fits(also, facts):
            points.append(also)
            third = dice.weighted(_ALSO[main])
            if third not in points and _fits(third, facts) and dice.chance(0.15):
                points.append(third)
    if not ironic and dice.chance(0.16):
        points.insert(0 if dice.chance(0.5) else len(points), "displeased")
    if dice.chance(0.17 if score == 1 else 0.10):
        points.insert(0 if dice.chance(0.12) and not ironic else len(points), "refuses")
    return Plan(tuple(points), strong, ironic)


def _praises(dice: Dice, facts: Facts, without: tuple[str, ...], most: int) -> list[str]:
    """Topics to praise that agree with the facts, at least one and at most `most`."""
    open_topics = {topic: weight for topic, weight in _PRAISED.items() if topic not in without}
    if not facts.received:
        for topic in ("praise_product", "praise_general", "praise_delivery", "praise_price"):
            open_topics.pop(topic, None)
    if facts.overdue:
        open_topics.pop("praise_delivery", None)
    if facts.value is None:
        open_topics.pop("praise_price", None)
    chosen: list[str] = []
    while open_topics and len(chosen) < most:
        topic = dice.weighted(Weighted(open_topics.items()))
        del open_topics[topic]
        if not (topic == "praise_general" and chosen and dice.chance(0.5)):
            chosen.append(topic)
    return chosen


def _good(dice: Dice, facts: Facts, score: int) -> Plan:
    strong = dice.chance(_STRONG_GOOD[score])
    if dice.chance(0.05):
        return Plan(("recommends",), strong)
    many = dice.random()
    points = _praises(dice, facts, (), 1 if many < 0.53 else 2 if many < 0.89 else 3)
    if facts.received and not {"praise_product", "praise_general"} & set(points) and dice.chance(0.25):
        points.append("neutral")
    if dice.chance(0.22) or not points:
        points.insert(0 if dice.chance(0.15) else len(points), "recommends")
    return Plan(tuple(points), strong)


def _mixed(dice: Dice, facts: Facts, score: int) -> Plan:
    main = _main_complaint(dice, facts) or "service"
    clashing = {
        "late": ("praise_delivery", "praise_general"),
        "missing": ("praise_delivery", "praise_general"),
        "defective": ("praise_product", "praise_general"),
        "wrong": ("praise_product", "praise_general"),
        "service": ("praise_service", "praise_general"),
        "price": ("praise_price", "praise_general"),
    }[main]
    praise = _praises(dice, facts, clashing, 1 if dice.chance(0.8) else 2)
    strong = dice.chance(0.3)
    points = [*praise, main] if dice.chance(0.68) else [main, *praise]
    verdict = dice.random()
    if verdict < (0.12 if score >= 4 else 0.04):
        points.append("recommends")
    elif verdict > (0.97 if score >= 3 else 0.88):
        points.append("refuses")
    return Plan(tuple(points), strong)


def _neutral(dice: Dice) -> Plan:
    return Plan(("neutral",) if dice.chance(0.55) else ("lukewarm",), strong=False)
