"""The job: one SELECT that answers a question, and a sentence for its result.

An answer is a block of SQL and then one sentence in Portuguese, in which values of the result stand as placeholders:
the column's name in braces, filled in from the first row of what the query returns.

    ```sql
    SELECT COUNT(*) AS pedidos FROM orders_enriched WHERE customer_state = 'SP'
    ```
    Foram {pedidos} pedidos em São Paulo.

A pair's reference holds

    question    text: what is asked; a number in the sentence may stand here
    sql         text: the gold query, whose result is the answer
    ordered     true or false: whether the question asks for an order of rows

The gold query returns at least a row on every database (`databases.py`), and not the same rows on all of them.
Its LIMIT and its ORDER BY decide which ties may be broken either way, whatever `ordered` says (`gold.py`).
"""
