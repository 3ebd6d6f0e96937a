CREATE SINK sales_feed
FROM sales_by_item
WITH (
  connector = 'kafka',
  connection = broker,
  topic = '${env}.sales'
)
FORMAT UPSERT ENCODE JSON;
