"""Phrase banks in Brazilian Portuguese, by what the customer says. All of them were written for this package.

How to read a template:

    [ ... ]     the literal span of the complaint (one in every template of a complaint)
    <a|b|>      one of the alternatives, possibly none; may be nested
    {slot}      filled in by `words.Words`: a product word, days, dates, money, a shop, a name
    @           o or a, by the gender of the product word of this clause
    §           o or a, by the gender of the customer
    + at the start: for a strong tone only (it holds a word of `gold.STRONG_PRAISE` or `gold.STRONG_COMPLAINT`)

Clauses start in lower case and have no final full stop, so that they can stand first, last, or after "mas".
"""
