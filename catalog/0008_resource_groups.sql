-- Each resource group has its own lease. Older owners do not write their version.
ALTER TABLE rw_catalog.runtime_lease ADD COLUMNS (
  version STRING COMMENT 'the version of rw_sql that the owner runs',
  let_go_epoch BIGINT COMMENT 'the newest epoch for which it has stopped every job that is not of its group any more'
);

-- Statements that sessions without a JVM pass to the owner of a group. The newest row of a request holds.
CREATE TABLE rw_catalog.runtime_requests (
  seq BIGINT NOT NULL,
  request STRING NOT NULL,
  session STRING NOT NULL COMMENT 'requests of one session run one after the other',
  resource_group STRING NOT NULL COMMENT 'the group whose owner runs it',
  state STRING NOT NULL COMMENT 'ASKED, TAKEN, DONE or WITHDRAWN',
  asked_ms BIGINT NOT NULL,
  taken_by STRING COMMENT 'the owner that runs it',
  body STRING COMMENT 'the statement and the parameters of its session, as JSON; null once it is done',
  progress STRING COMMENT 'what the statement waits for, as JSON',
  answer STRING COMMENT 'rows or error, as JSON'
) TBLPROPERTIES (
  'delta.dataSkippingNumIndexedCols' = '1',
  'delta.logRetentionDuration' = 'interval 10 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 10 minutes'
);

CREATE OR REPLACE VIEW rw_catalog.rw_lease AS
SELECT
  CASE WHEN lease = 'jobs' THEN 'default' ELSE substring(lease, 6) END AS resource_group,
  owner,
  version,
  host,
  python_pid,
  jvm_pid,
  timestamp_millis(taken_at_ms) AS taken_at,
  timestamp_millis(heartbeat_ms) AS heartbeat_at,
  timestamp_millis(expires_ms) AS expires_at,
  applied_epoch,
  is_released
FROM (SELECT *, row_number() OVER (PARTITION BY lease ORDER BY seq DESC) AS age FROM rw_catalog.runtime_lease)
WHERE age = 1;
