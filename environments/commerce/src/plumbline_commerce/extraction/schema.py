"""The ten keys of an extraction, their types, ranges and values."""

from typing import Any, TypeGuard, get_args

from plumbline_commerce.database.gold import MAX_SPAN, Category, Sentiment

SENTIMENTS: tuple[str, ...] = get_args(Sentiment)
CATEGORIES: tuple[str, ...] = get_args(Category)
ISSUES = ("delivery_issue", "product_issue", "service_issue")
JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "sentiment": {"type": "string", "enum": list(SENTIMENTS)},
        "sentiment_score": {"type": "number", "minimum": 0, "maximum": 5},
        "complaint_category": {"type": "string", "enum": list(CATEGORIES)},
        "delivery_issue": {"type": "boolean"},
        "product_issue": {"type": "boolean"},
        "service_issue": {"type": "boolean"},
        "would_recommend": {"type": ["boolean", "null"]},
        "delay_days": {"type": ["integer", "null"], "minimum": 0},
        "churn_risk": {"type": "number", "minimum": 0, "maximum": 1},
        "main_complaint": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_SPAN},
    },
    "additionalProperties": False,
}
JSON_SCHEMA["required"] = list(JSON_SCHEMA["properties"])
KEYS: tuple[str, ...] = tuple(JSON_SCHEMA["required"])
MAY_BE_NULL = frozenset(key for key, value in JSON_SCHEMA["properties"].items() if "null" in value["type"])
"""Keys of which null says something of the review; of another, that nobody knows it."""


def fits(key: str, value: object) -> bool:
    """Whether a value has the key's type, range and spelling. 7.0 is an integer, as JSON Schema has it."""
    if key == "sentiment":
        return value in SENTIMENTS
    if key == "complaint_category":
        return value in CATEGORIES
    if key in ISSUES:
        return isinstance(value, bool)
    if key == "would_recommend":
        return value is None or isinstance(value, bool)
    if key == "delay_days":
        return value is None or (is_number(value) and value == value // 1 >= 0)
    if key == "main_complaint":
        return value is None or (isinstance(value, str) and 0 < len(value) <= MAX_SPAN)
    top = 5 if key == "sentiment_score" else 1
    return is_number(value) and 0 <= value <= top


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a decoded JSON value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
