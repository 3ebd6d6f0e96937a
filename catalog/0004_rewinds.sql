-- What REWIND goes back to. A point belongs to one source and one unsafe operation; the copies lie beside the checkpoints.
CREATE TABLE rw_catalog.runtime_rewind_points (
  seq BIGINT NOT NULL,
  source_id BIGINT NOT NULL,
  operation BIGINT NOT NULL COMMENT 'the point is what was there just before it',
  reason STRING COMMENT 'why there is none; null where there is one',
  folder STRING COMMENT 'where the copies of the checkpoints lie, below the checkpoints of the warehouse',
  body STRING COMMENT 'versions, positions and dependents as JSON',
  made_ms BIGINT NOT NULL,
  is_dropped BOOLEAN NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

-- Which REWINDs the owner has carried out.
CREATE TABLE rw_catalog.runtime_rewinds (
  seq BIGINT NOT NULL,
  epoch BIGINT NOT NULL COMMENT 'the operation that is the REWIND',
  source_id BIGINT NOT NULL,
  done_ms BIGINT NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

CREATE VIEW rw_catalog.rw_rewind_points AS
SELECT source_id, operation, reason IS NULL AS is_there, reason, timestamp_millis(made_ms) AS made_at, body
FROM (
  SELECT *, row_number() OVER (PARTITION BY source_id, operation ORDER BY seq DESC) AS age
  FROM rw_catalog.runtime_rewind_points
)
WHERE age = 1 AND NOT is_dropped;
