-- How far views have come with what was there before them. The newest row of a job holds.
CREATE TABLE rw_catalog.runtime_backfills (
  seq BIGINT NOT NULL,
  job STRING NOT NULL,
  object_id BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  phase STRING NOT NULL COMMENT 'reading history, catching up, or live once it is over',
  done BIGINT NOT NULL COMMENT 'offsets of the history that were read',
  total BIGINT NOT NULL,
  started_ms BIGINT NOT NULL,
  updated_ms BIGINT NOT NULL,
  is_over BOOLEAN NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

-- What is being made: RisingWave's columns, and the phase.
CREATE VIEW rw_catalog.rw_ddl_progress AS
SELECT
  b.object_id AS ddl_id,
  get_json_object(o.record, '$.definition') AS ddl_statement,
  'MATERIALIZED VIEW' AS create_type,
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
