-- The tables, each behind those that it refers to. SQLite keeps the text of a statement, so its bytes are the file's.
CREATE TABLE product_category_name_translation (
        product_category_name TEXT PRIMARY KEY,
        product_category_name_english TEXT NOT NULL
);
CREATE TABLE geolocation (
        geolocation_zip_code_prefix TEXT NOT NULL,
        geolocation_lat REAL NOT NULL,
        geolocation_lng REAL NOT NULL,
        geolocation_city TEXT NOT NULL,
        geolocation_state TEXT NOT NULL
);
CREATE TABLE customers (
        customer_id TEXT PRIMARY KEY,
        customer_unique_id TEXT NOT NULL,
        customer_zip_code_prefix TEXT NOT NULL,
        customer_city TEXT NOT NULL,
        customer_state TEXT NOT NULL
);
CREATE TABLE sellers (
        seller_id TEXT PRIMARY KEY,
        seller_zip_code_prefix TEXT NOT NULL,
        seller_city TEXT NOT NULL,
        seller_state TEXT NOT NULL
);
CREATE TABLE products (
        product_id TEXT PRIMARY KEY,
        product_category_name TEXT REFERENCES product_category_name_translation (product_category_name),
        product_name_lenght INTEGER,
        product_description_lenght INTEGER,
        product_photos_qty INTEGER,
        product_weight_g INTEGER,
        product_length_cm INTEGER,
        product_height_cm INTEGER,
        product_width_cm INTEGER
);
CREATE TABLE orders (
        order_id TEXT PRIMARY KEY,
        customer_id TEXT NOT NULL UNIQUE REFERENCES customers (customer_id),
        order_status TEXT NOT NULL,
        order_purchase_timestamp TEXT NOT NULL,
        order_approved_at TEXT,
        order_delivered_carrier_date TEXT,
        order_delivered_customer_date TEXT,
        order_estimated_delivery_date TEXT NOT NULL
);
CREATE TABLE order_items (
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        order_item_id INTEGER NOT NULL,
        product_id TEXT NOT NULL REFERENCES products (product_id),
        seller_id TEXT NOT NULL REFERENCES sellers (seller_id),
        shipping_limit_date TEXT NOT NULL,
        price REAL NOT NULL,
        freight_value REAL NOT NULL,
        PRIMARY KEY (order_id, order_item_id)
);
CREATE TABLE order_payments (
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        payment_sequential INTEGER NOT NULL,
        payment_type TEXT NOT NULL,
        payment_installments INTEGER NOT NULL,
        payment_value REAL NOT NULL,
        PRIMARY KEY (order_id, payment_sequential)
);
CREATE TABLE order_reviews (
        review_id TEXT NOT NULL,
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        review_score INTEGER NOT NULL CHECK (review_score BETWEEN 1 AND 5),
        review_comment_title TEXT,
        review_comment_message TEXT,
        review_creation_date TEXT NOT NULL,
        review_answer_timestamp TEXT NOT NULL,
        PRIMARY KEY (review_id, order_id)
);
CREATE TABLE orders_enriched (
        order_id TEXT PRIMARY KEY REFERENCES orders (order_id),
        customer_id TEXT NOT NULL REFERENCES customers (customer_id),
        customer_unique_id TEXT NOT NULL,
        first_name TEXT NOT NULL,
        customer_city TEXT NOT NULL,
        customer_state TEXT NOT NULL,
        product_category TEXT,
        num_items INTEGER NOT NULL,
        order_value REAL,
        freight_value REAL,
        payment_type TEXT,
        installments INTEGER,
        order_status TEXT NOT NULL,
        order_date TEXT NOT NULL,
        estimated_date TEXT NOT NULL,
        delivered_date TEXT,
        delivery_days INTEGER,
        delay_days INTEGER,
        review_id TEXT,
        review_score INTEGER,
        review_title TEXT,
        review_text TEXT,
        sentiment TEXT,
        sentiment_score REAL,
        complaint_category TEXT,
        delivery_issue INTEGER,
        product_issue INTEGER,
        service_issue INTEGER,
        would_recommend INTEGER,
        main_complaint TEXT,
        churn_risk REAL
);
-- The indices, which are made when the rows are in.
CREATE INDEX geolocation_zip ON geolocation (geolocation_zip_code_prefix);
CREATE INDEX customers_unique ON customers (customer_unique_id);
CREATE INDEX customers_state ON customers (customer_state);
CREATE INDEX sellers_state ON sellers (seller_state);
CREATE INDEX products_category ON products (product_category_name);
CREATE INDEX orders_purchase ON orders (order_purchase_timestamp);
CREATE INDEX order_items_product ON order_items (product_id);
CREATE INDEX order_items_seller ON order_items (seller_id);
CREATE INDEX order_reviews_order ON order_reviews (order_id);
CREATE INDEX enriched_customer ON orders_enriched (customer_id);
CREATE INDEX enriched_unique ON orders_enriched (customer_unique_id);
CREATE INDEX enriched_state ON orders_enriched (customer_state);
CREATE INDEX enriched_category ON orders_enriched (product_category);
CREATE INDEX enriched_complaint ON orders_enriched (complaint_category);
CREATE INDEX enriched_date ON orders_enriched (order_date);
