"""The rows of `orders_enriched`: one for each order, with its review and the review's gold."""

from dataclasses import dataclass

from plumbline_commerce.database.facts import Occasion
from plumbline_commerce.database.gold import Gold
from plumbline_commerce.database.orders import Order

Row = tuple[str | int | float | None, ...]


@dataclass(frozen=True, slots=True)
class OrderReview:
    """A review as stored."""

    review_id: str
    occasion: Occasion
    score: int
    title: str | None
    message: str | None
    gold: Gold | None
    """None without a message."""


def enriched_row(order: Order, review: OrderReview | None) -> Row:
    """The row of an order; review columns are NULL without a review, gold columns without a message."""
    person = order.person
    category = order.items[0].product.category if order.items else None
    main = max(order.payments, key=lambda payment: payment.value)
    gold = review.gold if review else None
    labels: Row = (
        (
            gold.sentiment,
            gold.sentiment_score,
            gold.complaint_category,
            gold.delivery_issue,
            gold.product_issue,
            gold.service_issue,
            gold.would_recommend,
            gold.main_complaint,
            gold.churn_risk,
        )
        if gold
        else (None,) * 9
    )
    return (
        order.order_id,
        order.customer_id,
        person.unique_id,
        person.first_name,
        person.city.plain,
        person.city.state,
        category.name if category else None,
        len(order.items),
        order.value,
        order.freight,
        main.kind,
        main.installments,
        order.status,
        order.purchased.date().isoformat(),
        order.estimated.isoformat(),
        order.delivered.date().isoformat() if order.delivered else None,
        order.delivery_days,
        order.delay_days,
        review.review_id if review else None,
        review.score if review else None,
        review.title if review else None,
        review.message if review else None,
        *labels,
    )
