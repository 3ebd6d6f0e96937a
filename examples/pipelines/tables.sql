-- The key of each record is the customer's id; a record without a value deletes the customer's row.
CREATE TABLE customers (
  id CHARACTER VARYING PRIMARY KEY,
  name CHARACTER VARYING,
  country CHARACTER VARYING
)
WITH (
  connector = 'kafka',
  connection = broker,
  topic = '${env}.customers'
)
FORMAT UPSERT ENCODE JSON
KEY ENCODE TEXT;

CREATE TABLE items (
  id CHARACTER VARYING PRIMARY KEY,
  title CHARACTER VARYING,
  cents BIGINT
)
WITH (
  connector = 'kafka',
  connection = broker,
  topic = '${env}.items'
)
FORMAT PLAIN ENCODE JSON;
