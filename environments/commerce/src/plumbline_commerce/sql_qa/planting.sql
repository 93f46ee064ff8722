-- What is changed in a drawn shop so that few orders tell near queries apart: values at the borders that questions ask
-- about (R$ 100 exactly, the last day of a month), rare cases made common (nobody reviewed it, it never arrived, a
-- person who buys again), and rare places and categories evened out. The tables still agree with one another.
--
-- dice(key, what, n) is an integer from 0 to n - 1 that the shop's seed, the key and `what` decide.

-- Half of the orders come from the places that are asked about, evenly, and half from people who buy again.
CREATE TEMP TABLE places AS
SELECT row_number() OVER () - 1 AS n, column1 AS city, column2 AS state FROM (VALUES
    ('sao paulo', 'SP'), ('campinas', 'SP'), ('guarulhos', 'SP'), ('santos', 'SP'), ('rio de janeiro', 'RJ'),
    ('niteroi', 'RJ'), ('belo horizonte', 'MG'), ('porto alegre', 'RS'), ('caxias do sul', 'RS'), ('curitiba', 'PR'),
    ('florianopolis', 'SC'), ('joinville', 'SC'), ('salvador', 'BA'), ('brasilia', 'DF'), ('vitoria', 'ES'),
    ('goiania', 'GO'), ('recife', 'PE'), ('fortaleza', 'CE'));
UPDATE customers SET (customer_city, customer_state) =
    (SELECT city, state FROM places WHERE n = dice(customer_id, 'place', 18)) WHERE dice(customer_id, 'moved', 2) = 0;
UPDATE customers SET customer_unique_id = customer_city || ' ' || dice(customer_id, 'person', 8)
    WHERE dice(customer_id, 'again', 2) = 0;

-- Half of the products have a category that is asked about, evenly, and a twelfth has none; weights at the borders.
CREATE TEMP TABLE kinds AS
SELECT row_number() OVER () - 1 AS n, column1 AS name FROM (VALUES
    ('cama_mesa_banho'), ('beleza_saude'), ('esporte_lazer'), ('moveis_decoracao'), ('informatica_acessorios'),
    ('utilidades_domesticas'), ('relogios_presentes'), ('telefonia'), ('ferramentas_jardim'), ('automotivo'),
    ('brinquedos'), ('cool_stuff'), ('perfumaria'), ('bebes'), ('eletronicos'), ('papelaria'), ('pet_shop'));
UPDATE products SET product_category_name = (SELECT name FROM kinds WHERE n = dice(product_id, 'kind', 17))
    WHERE dice(product_id, 'other', 2) = 0;
UPDATE products SET product_category_name = NULL WHERE dice(product_id, 'none', 12) = 0;
UPDATE products SET product_weight_g = CASE dice(product_id, 'weight', 3) WHEN 0 THEN 50 WHEN 1 THEN 500 ELSE 1000 END
    + CASE dice(product_id, 'over', 6) WHEN 0 THEN -5 WHEN 1 THEN 0 WHEN 2 THEN 1 WHEN 3 THEN 5 ELSE 0 END
    WHERE dice(product_id, 'heavy', 2) = 0;
UPDATE products SET product_photos_qty = 1 + dice(product_id, 'photos', 4) WHERE dice(product_id, 'seen', 3) = 0;
CREATE TEMP TABLE stock AS SELECT row_number() OVER (ORDER BY product_id) - 1 AS n, product_id FROM products;
CREATE UNIQUE INDEX temp.stock_n ON stock (n);
UPDATE order_items SET product_id = (SELECT s.product_id FROM stock AS s
    WHERE n = dice(order_id, 'product', (SELECT COUNT(*) FROM stock)))
    WHERE order_item_id = 1 AND dice(order_id, 'swapped', 2) = 0;

-- Prices and freights at the borders; orders of several items, and some of none.
UPDATE order_items SET price = 50.0 + 50 * dice(order_id, 'price', 4)
    + CASE dice(order_id, 'over', 6) WHEN 0 THEN -5 WHEN 1 THEN -0.5 WHEN 2 THEN 0.5 WHEN 3 THEN 5 ELSE 0 END
    WHERE order_item_id = 1 AND dice(order_id, 'round', 2) = 0;
UPDATE order_items SET freight_value = 10.0 + 5 * dice(order_id, 'freight', 3)
    + CASE dice(order_id, 'above', 4) WHEN 0 THEN -0.5 WHEN 1 THEN 0.5 ELSE 0 END
    WHERE order_item_id = 1 AND dice(order_id, 'cheap', 3) = 0;
INSERT INTO order_items
SELECT order_id, 2, (SELECT s.product_id FROM stock AS s
    WHERE n = dice(order_id, 'second', (SELECT COUNT(*) FROM stock))),
    seller_id, shipping_limit_date, round(price * (1 + dice(order_id, 'ratio', 3)) / 2, 2), freight_value
    FROM order_items GROUP BY order_id HAVING COUNT(*) = 1 AND dice(order_id, 'two', 8) = 0;
DELETE FROM order_items WHERE dice(order_id, 'empty', 9) = 0;
UPDATE sellers SET (seller_city, seller_state) =
    (SELECT city, state FROM places WHERE n = dice(seller_id, 'place', 18)) WHERE dice(seller_id, 'moved', 3) = 0;

-- All ways to pay, in any number of instalments; a sixth of the orders is paid in two ways.
UPDATE order_payments SET payment_type = CASE dice(order_id, 'type', 4)
    WHEN 0 THEN 'boleto' WHEN 1 THEN 'voucher' WHEN 2 THEN 'debit_card' ELSE 'credit_card' END
    WHERE payment_sequential = 1 AND dice(order_id, 'otherwise', 3) = 0;
UPDATE order_payments SET payment_installments = 1 + dice(order_id, 'instalments', 8)
    WHERE payment_sequential = 1 AND dice(order_id, 'parts', 3) = 0;
INSERT INTO order_payments
SELECT order_id, 2, CASE dice(order_id, 'second', 4) WHEN 0 THEN 'credit_card' WHEN 1 THEN 'boleto' ELSE 'voucher' END,
    1, round(payment_value * (0.3 + 0.4 * dice(order_id, 'larger', 2)), 2) FROM order_payments
    GROUP BY order_id HAVING COUNT(*) = 1 AND dice(order_id, 'both', 6) = 0;
UPDATE order_payments SET payment_value = round(payment_value * (0.7 - 0.4 * dice(order_id, 'larger', 2)), 2)
    WHERE payment_sequential = 1 AND dice(order_id, 'both', 6) = 0
    AND (SELECT COUNT(*) FROM order_payments AS p WHERE p.order_id = order_payments.order_id) = 2;

-- Half of the orders fall on the first, the last or a middle day of a month, all months evenly; each keeps its pace.
CREATE TEMP TABLE moved AS
SELECT order_id, CAST(julianday(date(month, CASE dice(order_id, 'day', 7) WHEN 0 THEN '+0 days' WHEN 1 THEN '+1 days'
    WHEN 2 THEN '+13 days' WHEN 3 THEN '+14 days' WHEN 4 THEN '+15 days' WHEN 5 THEN '+1 months'
    ELSE '+1 months' END, CASE dice(order_id, 'day', 7) WHEN 5 THEN '-1 days' WHEN 6 THEN '-2 days' ELSE '+0 days' END))
    - julianday(date(order_purchase_timestamp)) AS INTEGER) || ' days' AS days
    FROM (SELECT order_id, order_purchase_timestamp, date('2016-10-01', dice(order_id, 'month', 23) || ' months') AS month
    FROM orders) WHERE dice(order_id, 'shifted', 2) = 0;
CREATE UNIQUE INDEX temp.moved_order ON moved (order_id);
UPDATE orders SET order_purchase_timestamp = datetime(order_purchase_timestamp, days),
    order_approved_at = datetime(order_approved_at, days),
    order_delivered_carrier_date = datetime(order_delivered_carrier_date, days),
    order_delivered_customer_date = datetime(order_delivered_customer_date, days),
    order_estimated_delivery_date = datetime(order_estimated_delivery_date, days)
    FROM moved WHERE moved.order_id = orders.order_id;

-- A fifth arrives as the month of the purchase ends or the next begins; a seventh more comes late, an eighth never.
UPDATE orders SET order_delivered_customer_date = datetime(date(order_purchase_timestamp, 'start of month',
    '+1 months', (dice(order_id, 'turn', 3) - 1) || ' days'), '+15 hours')
    WHERE order_delivered_customer_date IS NOT NULL AND dice(order_id, 'turned', 5) = 0;
UPDATE orders SET order_estimated_delivery_date =
    datetime(date(order_delivered_customer_date, '-' || dice(order_id, 'days', 9) || ' days'))
    WHERE order_delivered_customer_date IS NOT NULL AND dice(order_id, 'late', 7) = 0;
UPDATE orders SET order_delivered_customer_date = NULL,
    order_status = CASE dice(order_id, 'status', 2) WHEN 0 THEN 'shipped' ELSE 'canceled' END
    WHERE dice(order_id, 'lost', 8) = 0;

-- All scores, more of the lower ones than people give, and orders without a review.
UPDATE order_reviews SET review_score = 1 + dice(order_id, 'score', 5) WHERE dice(order_id, 'scored', 3) = 0;
DELETE FROM order_reviews WHERE dice(order_id, 'silent', 12) = 0;

-- orders_enriched says what the other tables say.
UPDATE orders_enriched SET
    (customer_unique_id, customer_city, customer_state) = (SELECT customer_unique_id, customer_city, customer_state
        FROM customers AS c WHERE c.customer_id = orders_enriched.customer_id),
    (order_status, order_date, estimated_date, delivered_date) = (SELECT order_status, date(order_purchase_timestamp),
        date(order_estimated_delivery_date), date(order_delivered_customer_date)
        FROM orders AS o WHERE o.order_id = orders_enriched.order_id),
    (num_items, order_value, freight_value) = (SELECT COUNT(*), round(SUM(price), 2), round(SUM(freight_value), 2)
        FROM order_items AS i WHERE i.order_id = orders_enriched.order_id),
    product_category = (SELECT product_category_name FROM order_items AS i JOIN products AS p USING (product_id)
        WHERE i.order_id = orders_enriched.order_id ORDER BY order_item_id LIMIT 1),
    (payment_type, installments) = (SELECT payment_type, payment_installments FROM order_payments AS p
        WHERE p.order_id = orders_enriched.order_id ORDER BY payment_value DESC, payment_sequential LIMIT 1),
    review_score = (SELECT review_score FROM order_reviews AS r WHERE r.order_id = orders_enriched.order_id);
UPDATE orders_enriched SET delivery_days = CAST(julianday(delivered_date) - julianday(order_date) AS INTEGER),
    delay_days = max(0, CAST(julianday(delivered_date) - julianday(estimated_date) AS INTEGER));
UPDATE orders_enriched SET review_id = NULL, review_title = NULL, review_text = NULL, sentiment = NULL,
    sentiment_score = NULL, complaint_category = NULL, delivery_issue = NULL, product_issue = NULL,
    service_issue = NULL, would_recommend = NULL, main_complaint = NULL, churn_risk = NULL WHERE review_score IS NULL;
ANALYZE;
