-- Readers that stand still while a BEGIN UNSAFE block is committed. A hold ends with the next commit of anybody.
CREATE TABLE rw_catalog.runtime_holds (
  seq BIGINT NOT NULL,
  hold STRING NOT NULL COMMENT 'one COMMIT that holds one or more sources',
  source_id BIGINT NOT NULL,
  epoch BIGINT NOT NULL COMMENT 'the catalog that the block is committed on',
  host STRING NOT NULL,
  pid BIGINT NOT NULL,
  process_start STRING NOT NULL,
  expires_ms BIGINT NOT NULL COMMENT 'where the process cannot be looked at',
  is_taken BOOLEAN NOT NULL COMMENT 'the owner has stopped the reader',
  is_released BOOLEAN NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);
