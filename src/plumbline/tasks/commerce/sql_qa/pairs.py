"""Questions over the shop, and their gold queries."""

from plumbline.records import Message
from plumbline.tasks.commerce.job import Pair, Shop

SYSTEM = "Responda com um bloco ```sql com um único SELECT e depois uma frase com {coluna} no lugar dos valores."
QUESTIONS: tuple[tuple[str, str, str, bool], ...] = (
    (
        "Quantos pedidos foram feitos em São Paulo?",
        "SELECT COUNT(*) AS pedidos FROM orders_enriched WHERE customer_state = 'SP'",
        "Foram {pedidos} pedidos em São Paulo.",
        False,
    ),
    (
        "Qual é a nota média das avaliações por estado?",
        "SELECT customer_state, AVG(review_score) AS nota FROM orders_enriched GROUP BY customer_state",
        "A nota média em {customer_state} foi {nota}.",
        False,
    ),
    (
        "Quais são os 5 estados com mais pedidos, do maior para o menor?",
        (
            "SELECT c.customer_state AS estado, COUNT(*) AS pedidos FROM orders o JOIN customers c "
            "ON c.customer_id = o.customer_id GROUP BY c.customer_state ORDER BY pedidos DESC LIMIT 5"
        ),
        "O estado com mais pedidos foi {estado}, com {pedidos}.",
        True,
    ),
    (
        "Qual foi o valor total pago por boleto em 2017?",
        (
            "SELECT SUM(p.payment_value) AS total FROM order_payments p JOIN orders o ON o.order_id = p.order_id "
            "WHERE p.payment_type = 'boleto' AND strftime('%Y', o.order_purchase_timestamp) = '2017'"
        ),
        "Foram pagos R$ {total} por boleto em 2017.",
        False,
    ),
    (
        "Quantos clientes diferentes fizeram mais de um pedido?",
        (
            "SELECT COUNT(*) AS clientes FROM (SELECT customer_unique_id FROM customers GROUP BY customer_unique_id "
            "HAVING COUNT(*) > 1)"
        ),
        "Houve {clientes} clientes com mais de um pedido.",
        False,
    ),
    (
        "Quais categorias têm mais de 20 pedidos com atraso?",
        (
            "SELECT product_category AS categoria, COUNT(*) AS atrasos FROM orders_enriched WHERE delay_days > 0 "
            "AND product_category IS NOT NULL GROUP BY product_category HAVING COUNT(*) >= 2"
        ),
        "A categoria {categoria} teve {atrasos} pedidos com atraso.",
        False,
    ),
)


def pairs(_shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split."""
    made = [
        Pair(
            id=f"sql_qa-{number}",
            prompt=[Message(role="system", content=SYSTEM), Message(role="user", content=question)],
            gold=f"```sql\n{sql}\n```\n{sentence}",
            reference={"question": question, "sql": sql, "ordered": ordered},
            about={},
        )
        for number, (question, sql, sentence, ordered) in enumerate(QUESTIONS)
    ]
    return {"train": made[:4], "val": made[4:5], "test": made[5:]}
