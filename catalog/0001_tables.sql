-- The metastore's tables. Types are Spark's; times are milliseconds since 1970.
-- Released files never change: a later change is a file with the next number.

-- Which of these files a warehouse has seen.
CREATE TABLE rw_catalog.migrations (
  number BIGINT NOT NULL COMMENT 'the number in the file name',
  name STRING NOT NULL COMMENT 'the file name',
  applied_ms BIGINT NOT NULL
);

-- The log of record. Appending a row with entry = 'operation' is the commit of a statement; a row with
-- entry = 'outcome' says later what came of it. Statistics are kept for epoch alone: the images can be megabytes.
CREATE TABLE rw_catalog.operations (
  epoch BIGINT NOT NULL COMMENT 'the number of the commit; an outcome carries the epoch it is about',
  entry STRING NOT NULL COMMENT 'operation or outcome',
  commit_id STRING COMMENT 'tells a writer whether a commit in doubt was its own',
  kind STRING COMMENT 'the words of the statement',
  statement STRING COMMENT 'canonical text, secrets by name',
  objects ARRAY<STRING> COMMENT 'the names it affects, dependents included',
  is_unsafe BOOLEAN,
  actor STRING COMMENT 'who',
  at_ms BIGINT NOT NULL,
  reason STRING,
  plan STRING COMMENT 'what EXPLAIN prints',
  changes STRING COMMENT 'after-image: JSON list of changes',
  before STRING COMMENT 'before-image: JSON of everything the changes touch',
  prediction STRING COMMENT 'JSON, for the proof afterwards',
  outcome STRING COMMENT 'applied, committed or failed: and why',
  duration_ms BIGINT
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

-- Projections of operations: the newest row of a key holds.
CREATE TABLE rw_catalog.objects (
  epoch BIGINT NOT NULL COMMENT 'the operation that wrote this version',
  id BIGINT NOT NULL,
  kind STRING NOT NULL,
  name STRING NOT NULL,
  is_dropped BOOLEAN NOT NULL,
  record STRING COMMENT 'JSON; null once dropped'
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '2',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

CREATE TABLE rw_catalog.fragment_splits (
  epoch BIGINT NOT NULL COMMENT 'the operation that assigned or took the split',
  fragment STRING NOT NULL,
  split STRING NOT NULL,
  is_assigned BOOLEAN NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '2',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

CREATE TABLE rw_catalog.source_state (
  epoch BIGINT NOT NULL COMMENT 'the operation that set or forgot the state',
  fragment STRING NOT NULL,
  split STRING NOT NULL,
  state STRING COMMENT 'the next record to read, as JSON of the connector; null once forgotten',
  log_version BIGINT NOT NULL COMMENT 'version of the log of the fragment when it was set',
  actor STRING COMMENT 'who'
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '2',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

-- Facts of the running jobs. They advance no epoch; seq orders the rows of a key, the newest holds.
CREATE TABLE rw_catalog.runtime_lease (
  seq BIGINT NOT NULL,
  lease STRING NOT NULL COMMENT 'always the same: a warehouse has one owner',
  owner STRING NOT NULL,
  host STRING NOT NULL,
  python_pid BIGINT NOT NULL,
  jvm_pid BIGINT NOT NULL,
  python_start STRING NOT NULL,
  jvm_start STRING NOT NULL,
  taken_at_ms BIGINT NOT NULL,
  heartbeat_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  applied_epoch BIGINT NOT NULL COMMENT 'the newest epoch that the owner brought into the world',
  is_released BOOLEAN NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

CREATE TABLE rw_catalog.runtime_runs (
  seq BIGINT NOT NULL,
  job STRING NOT NULL,
  run BIGINT NOT NULL COMMENT 'the start of the job, from 1; fences all earlier ones',
  epoch BIGINT NOT NULL COMMENT 'the catalog the run started from',
  owner STRING NOT NULL,
  started_ms BIGINT NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

CREATE TABLE rw_catalog.runtime_job_status (
  seq BIGINT NOT NULL,
  job STRING NOT NULL,
  is_dropped BOOLEAN NOT NULL,
  object_id BIGINT,
  state STRING,
  reason STRING,
  last_error STRING,
  run BIGINT,
  restarts BIGINT,
  updated_ms BIGINT
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

CREATE TABLE rw_catalog.runtime_positions (
  seq BIGINT NOT NULL,
  fragment STRING NOT NULL,
  split STRING NOT NULL,
  state STRING NOT NULL,
  epoch BIGINT NOT NULL,
  run BIGINT NOT NULL,
  log_version BIGINT NOT NULL
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);
