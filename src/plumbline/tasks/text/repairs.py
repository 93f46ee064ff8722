"""The names of everything that may be done to read a text as JSON, in the order in which reports show them."""

from collections.abc import Set

REPAIRS: dict[str, str] = {
    # Where the value was found.
    "double_encoded": "the JSON was itself quoted: inside a JSON string, or with every quote escaped or doubled",
    "html_entities": 'the quotes were written as HTML entities (`&quot;` for `"`)',
    "thought": "a thought (`<think>…</think>`) was left out, or the object came from a thought that never ended",
    "fence": "a Markdown fence or backticks around the value were left out",
    "prose": "text before or after the value was left out",
    "several": "there were several objects: the last with most keys of the schema that fits it and is whole",
    "unwrapped": "the object, or a value, stood alone in a list where the schema says none",
    # Structure.
    "brackets": "a bracket was missing, of the wrong kind, or one too many",
    "trailing_comma": "a comma with nothing to separate was left out",
    "missing_comma": "two members or elements had no comma between them",
    "separator": "`=`, `=>`, `;`, a full-width mark or nothing stood where JSON has a colon or a comma",
    "comment": "a comment was left out",
    "ellipsis": "an ellipsis (`...`) was left out",
    "missing_value": "a key without a value was left out",
    "junk": "words that are no member were left out",
    # Texts.
    "quotes": "a quote was single, curly, a backtick, tripled or missing",
    "bare_key": "a key had no quotes",
    "bare_string": "a text had no quotes",
    "inner_quotes": "quotes inside a text were not escaped",
    "control_character": "a text held a raw newline, tab or other control character",
    "escape": "a text held a backslash escape that JSON does not know, or one stood between values",
    # Numbers and literals.
    "decimal_comma": "a comma was a decimal comma (`4,5`)",
    "thousands": "points, commas or blanks grouped the thousands (`1.234,56`)",
    "currency": "a currency mark was left out (`R$`)",
    "percent": "a percent sign was left out: `12,5%` is 12.5",
    "number_form": "a number that JSON writes otherwise (`+1`, `.5`, `5.`, `007`, `1_000`, `0x1F`)",
    "literal": "a literal of Python, JavaScript or Portuguese (`True`, `None`, `undefined`, `verdadeiro`)",
    "non_finite": "NaN, an infinity or a number beyond all size became null",
    # What the schema decided.
    "quoted_number": "a text became the number that the schema asks for",
    "boolean_word": "a word, 0 or 1 became the boolean that the schema asks for (`não`)",
    "null_word": "a word for nothing became the null that the schema asks for (`nenhum`)",
    "enum": "a text became the member of the enumeration that it equals but for case, outer blanks and accents",
    "mismatch": "a value of another type than the schema says, outside of its `enum`, or without its `required` keys",
    # What a task decided that knows more of its keys than their types.
    "key_form": "a key was one of the task's but for case, accents and what stands between its words",
    "value_form": "a text was another way to say a value of its key (`entrega em atraso`, `7 dias`)",
    # What is lost.
    "unreadable": "a member, or everything from some point on, has no single reading and was left out",
    "truncated": "the text ended before the value did; what was whole was kept",
    "syntax": "a slip without a name of its own, such as a blank that JSON does not know",
}
"""Every repair by name, with what it means. Reports show them joined by "+" in this order."""

_RANK = {name: rank for rank, name in enumerate(REPAIRS)}


def in_order(names: Set[str]) -> tuple[str, ...]:
    """The names in the order of `REPAIRS`."""
    return tuple(sorted(names, key=_RANK.__getitem__))
