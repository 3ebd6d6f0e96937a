-- Views that show all schemas, and the schema of each object. The name of an object outside public begins with its
-- schema. These views replace those of the same names in the numbered files; a view changes no stored data.

CREATE VIEW rw_catalog.rw_schemas AS
SELECT 0 AS id, 'public' AS name, CAST(NULL AS TIMESTAMP) AS created_at, CAST(NULL AS BIGINT) AS epoch
UNION ALL
SELECT id, name, timestamp_millis(CAST(get_json_object(record, '$.created_at_ms') AS BIGINT)) AS created_at, epoch
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'schema';

CREATE VIEW rw_catalog.rw_objects AS
SELECT id, kind, name, epoch, CASE WHEN kind <> 'secret' THEN record END AS record,
  CASE WHEN kind IN ('source', 'table', 'materialized_view', 'sink', 'connection', 'secret') AND instr(name, '.') > 0
    THEN substring_index(name, '.', 1) WHEN kind IN ('source', 'table', 'materialized_view', 'sink', 'connection', 'secret')
    THEN 'public' END AS schema_name
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped;

CREATE VIEW rw_catalog.rw_sources AS
SELECT
  id,
  name,
  get_json_object(record, '$.connector') AS connector,
  CAST(get_json_object(record, '$.is_shared') AS BOOLEAN) AS is_shared,
  get_json_object(record, '$.definition') AS definition,
  map_from_entries(transform(
    from_json(get_json_object(record, '$.options'), 'array<array<string>>'), pair -> struct(pair[0], pair[1])
  )) AS options,
  CAST(get_json_object(record, '$.generation') AS BIGINT) AS generation,
  timestamp_millis(CAST(get_json_object(record, '$.created_at_ms') AS BIGINT)) AS created_at,
  epoch,
  CASE WHEN instr(name, '.') > 0 THEN substring_index(name, '.', 1) ELSE 'public' END AS schema_name
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'source';

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
  epoch,
  CASE WHEN instr(name, '.') > 0 THEN substring_index(name, '.', 1) ELSE 'public' END AS schema_name
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'table';

CREATE VIEW rw_catalog.rw_materialized_views AS
SELECT
  id,
  name,
  get_json_object(record, '$.definition') AS definition,
  get_json_object(record, '$.query') AS query,
  from_json(get_json_object(record, '$.inputs'), 'array<bigint>') AS inputs,
  from_json(get_json_object(record, '$.keys'), 'array<string>') AS keys,
  get_json_object(record, '$.schema') AS schema,
  CAST(get_json_object(record, '$.generation') AS BIGINT) AS generation,
  timestamp_millis(CAST(get_json_object(record, '$.created_at_ms') AS BIGINT)) AS created_at,
  epoch,
  CASE WHEN instr(name, '.') > 0 THEN substring_index(name, '.', 1) ELSE 'public' END AS schema_name
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'materialized_view';

CREATE VIEW rw_catalog.rw_sinks AS
SELECT
  id,
  name,
  get_json_object(record, '$.connector') AS connector,
  get_json_object(record, '$.type') AS sink_type,
  get_json_object(record, '$.definition') AS definition,
  map_from_entries(transform(
    from_json(get_json_object(record, '$.options'), 'array<array<string>>'), pair -> struct(pair[0], pair[1])
  )) AS options,
  from_json(get_json_object(record, '$.inputs'), 'array<bigint>') AS inputs,
  from_json(get_json_object(record, '$.keys'), 'array<string>') AS keys,
  CAST(get_json_object(record, '$.is_paused') AS BOOLEAN) AS is_paused,
  get_json_object(record, '$.pause_reason') AS pause_reason,
  CAST(get_json_object(record, '$.generation') AS BIGINT) AS generation,
  timestamp_millis(CAST(get_json_object(record, '$.created_at_ms') AS BIGINT)) AS created_at,
  epoch,
  CASE WHEN instr(name, '.') > 0 THEN substring_index(name, '.', 1) ELSE 'public' END AS schema_name
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'sink';

CREATE VIEW rw_catalog.rw_connections AS
SELECT
  id,
  name,
  get_json_object(record, '$.connector') AS type,
  get_json_object(record, '$.definition') AS definition,
  epoch,
  CASE WHEN instr(name, '.') > 0 THEN substring_index(name, '.', 1) ELSE 'public' END AS schema_name
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'connection';

CREATE VIEW rw_catalog.rw_secrets AS
SELECT
  id,
  name,
  get_json_object(record, '$.backend') AS backend,
  get_json_object(record, '$.definition') AS definition,
  epoch,
  CASE WHEN instr(name, '.') > 0 THEN substring_index(name, '.', 1) ELSE 'public' END AS schema_name
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'secret';
