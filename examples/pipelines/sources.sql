-- Each record is one order. Orders never change; the source payments contains their payments.
CREATE SOURCE orders (
  id BIGINT,
  customer CHARACTER VARYING,
  item CHARACTER VARYING,
  pieces INT,
  ordered_at TIMESTAMP WITH TIME ZONE
)
WITH (
  connector = 'kafka',
  connection = broker,
  topic = '${env}.orders',
  source_rate_limit = '${ORDERS_PER_SECOND}'
)
FORMAT PLAIN ENCODE JSON;

CREATE SOURCE payments (
  order_id BIGINT,
  method CHARACTER VARYING,
  cents BIGINT
)
WITH (
  connector = 'kafka',
  connection = broker,
  topic = '${env}.payments'
)
FORMAT PLAIN ENCODE JSON;
