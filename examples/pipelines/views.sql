CREATE MATERIALIZED VIEW paid
AS SELECT order_id, sum(cents) AS cents, count(*) AS payments FROM payments GROUP BY order_id;

CREATE MATERIALIZED VIEW order_lines
AS SELECT id, customer, item, pieces, ordered_at FROM orders WHERE pieces > 0;

CREATE MATERIALIZED VIEW order_totals
AS SELECT l.id, l.customer, l.item, l.pieces, l.pieces * i.cents AS cents
FROM order_lines AS l
JOIN items AS i ON l.item = i.id;

CREATE MATERIALIZED VIEW sales_by_item
AS SELECT item, count(*) AS orders, sum(pieces) AS pieces, sum(cents) AS cents
FROM order_totals
GROUP BY item;

CREATE MATERIALIZED VIEW sales_by_customer
AS SELECT t.customer, c.country, t.cents
FROM (SELECT customer, sum(cents) AS cents FROM order_totals GROUP BY customer) AS t
JOIN customers AS c ON t.customer = c.id;

CREATE MATERIALIZED VIEW unpaid
AS SELECT t.id, t.customer, t.cents, coalesce(p.cents, 0) AS paid
FROM order_totals AS t
LEFT JOIN paid AS p ON t.id = p.order_id
WHERE t.cents > coalesce(p.cents, 0);
