-- Tables with a connector. The associated source of one is the row of rw_sources with its name.
CREATE VIEW rw_catalog.rw_tables AS
SELECT
  id,
  name,
  get_json_object(record, '$.definition') AS definition,
  CAST(get_json_object(record, '$.source_id') AS BIGINT) AS source_id,
  from_json(get_json_object(record, '$.primary_key'), 'array<string>') AS primary_key,
  get_json_object(record, '$.conflict') AS on_conflict,
  from_json(get_json_object(record, '$.version_columns'), 'array<string>') AS version_columns,
  CAST(get_json_object(record, '$.is_append_only') AS BOOLEAN) AS append_only,
  get_json_object(record, '$.schema') AS schema,
  CAST(get_json_object(record, '$.generation') AS BIGINT) AS generation,
  timestamp_millis(CAST(get_json_object(record, '$.created_at_ms') AS BIGINT)) AS created_at,
  epoch
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'table';
