-- How far the refreshes of tables have come, chunk by chunk; chunk -1 is the loading. The newest row of a chunk holds.
CREATE TABLE rw_catalog.runtime_refresh_chunks (
  seq BIGINT NOT NULL,
  table_id BIGINT NOT NULL,
  refresh BIGINT NOT NULL COMMENT 'which refresh of the table, counted from 1',
  chunk BIGINT NOT NULL,
  position STRING COMMENT 'the key up to which the chunk reaches, as JSON; null where it has no rows',
  rows BIGINT NOT NULL COMMENT 'rows that differ from those of the table',
  epoch BIGINT NOT NULL COMMENT 'of the catalog when the chunk was merged',
  run BIGINT NOT NULL COMMENT 'the run of the table''s job',
  is_done BOOLEAN NOT NULL,
  updated_ms BIGINT NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

-- RisingWave's columns, and why the newest refresh came to nothing.
CREATE VIEW rw_catalog.rw_refresh_table_state AS
SELECT
  CAST(get_json_object(record, '$.table_id') AS BIGINT) AS table_id,
  get_json_object(record, '$.status') AS current_status,
  timestamp_millis(CAST(get_json_object(record, '$.triggered_ms') AS BIGINT)) AS last_trigger_time,
  timestamp_millis(CAST(get_json_object(record, '$.succeeded_ms') AS BIGINT)) AS last_success_time,
  CAST(get_json_object(record, '$.interval_s') AS BIGINT) AS trigger_interval_secs,
  get_json_object(record, '$.failure') AS last_failure
FROM (
  SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects
)
WHERE age = 1 AND NOT is_dropped AND kind = 'refresh';

CREATE VIEW rw_catalog.rw_refresh_progress AS
SELECT table_id, refresh, chunk, position, rows, epoch, run, is_done, timestamp_millis(updated_ms) AS updated_at
FROM (
  SELECT
    *,
    row_number() OVER (PARTITION BY table_id, refresh, chunk ORDER BY seq DESC) AS age,
    max(refresh) OVER (PARTITION BY table_id) AS newest
  FROM rw_catalog.runtime_refresh_chunks
)
WHERE age = 1 AND refresh = newest;

-- What is being made or refreshed: RisingWave's columns, and the phase.
CREATE VIEW rw_catalog.rw_ddl_progress AS
SELECT
  b.object_id AS ddl_id,
  CASE WHEN o.kind = 'table' AND b.phase IN ('loading', 'merging') THEN concat('REFRESH TABLE ', o.name)
    ELSE get_json_object(o.record, '$.definition') END AS ddl_statement,
  CASE WHEN o.kind = 'table' THEN 'TABLE' ELSE 'MATERIALIZED VIEW' END AS create_type,
  concat(format_number(CASE WHEN b.total = 0 THEN 100 ELSE 100 * b.done / b.total END, 2), '% (', b.done, '/', b.total, ')')
    AS progress,
  b.phase,
  timestamp_millis(b.started_ms) AS initialized_at
FROM (
  SELECT *, row_number() OVER (PARTITION BY job ORDER BY seq DESC) AS age FROM rw_catalog.runtime_backfills
) b
JOIN (
  SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects
) o ON o.id = b.object_id AND o.age = 1 AND NOT o.is_dropped
WHERE b.age = 1 AND NOT b.is_over;
