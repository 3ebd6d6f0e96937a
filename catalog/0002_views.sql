-- What plain Spark SQL sees of the metastore. rw_catalog.<table> stands for the Delta table at its path.

CREATE VIEW rw_catalog.rw_objects AS
SELECT id, kind, name, epoch, CASE WHEN kind <> 'secret' THEN record END AS record
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
  epoch
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'source';

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
  epoch
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
  epoch
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'sink';

CREATE VIEW rw_catalog.rw_connections AS
SELECT
  id,
  name,
  get_json_object(record, '$.connector') AS type,
  get_json_object(record, '$.definition') AS definition,
  epoch
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'connection';

CREATE VIEW rw_catalog.rw_secrets AS
SELECT
  id,
  name,
  get_json_object(record, '$.backend') AS backend,
  get_json_object(record, '$.definition') AS definition,
  epoch
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'secret';

CREATE VIEW rw_catalog.rw_pauses AS
SELECT
  id,
  name,
  CAST(get_json_object(record, '$.source_id') AS BIGINT) AS source_id,
  get_json_object(record, '$.reason') AS reason,
  epoch
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'pause';

CREATE VIEW rw_catalog.rw_parameters AS
SELECT name, get_json_object(record, '$.value') AS value, epoch
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
WHERE age = 1 AND NOT is_dropped AND kind = 'parameter';

CREATE VIEW rw_catalog.rw_depend AS
SELECT id AS objid, refobjid
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY epoch DESC) AS age FROM rw_catalog.objects)
LATERAL VIEW explode(array_distinct(concat(
  coalesce(from_json(get_json_object(record, '$.inputs'), 'array<bigint>'), array()),
  coalesce(from_json(get_json_object(record, '$.uses'), 'array<bigint>'), array())
))) AS refobjid
WHERE age = 1 AND NOT is_dropped;

CREATE VIEW rw_catalog.rw_fragment_splits AS
SELECT fragment, split, epoch
FROM (
  SELECT *, row_number() OVER (PARTITION BY fragment, split ORDER BY epoch DESC) AS age
  FROM rw_catalog.fragment_splits
)
WHERE age = 1 AND is_assigned;

CREATE VIEW rw_catalog.rw_source_state AS
SELECT fragment, split, state, epoch, log_version, actor
FROM (
  SELECT *, row_number() OVER (PARTITION BY fragment, split ORDER BY epoch DESC) AS age
  FROM rw_catalog.source_state
)
WHERE age = 1 AND state IS NOT NULL;

CREATE VIEW rw_catalog.rw_operations AS
SELECT
  operation.epoch,
  operation.kind,
  operation.statement,
  operation.objects,
  operation.is_unsafe,
  operation.actor,
  timestamp_millis(operation.at_ms) AS at,
  operation.reason,
  operation.plan,
  operation.changes,
  operation.before,
  operation.prediction,
  result.outcome,
  result.duration_ms,
  CASE
    WHEN operation.kind = 'REWIND SOURCE' THEN NULL -- another REWIND takes it back, with the rows
    WHEN operation.is_unsafe OR operation.kind RLIKE '^(PAUSE|RESUME|ALTER CONNECT|SET CONNECTION|UNDO)'
    THEN concat('UNDO OPERATION ', operation.epoch)
  END AS undo,
  taken_back.undone_by
FROM (SELECT * FROM rw_catalog.operations WHERE entry = 'operation') AS operation
LEFT JOIN (
  SELECT
    epoch,
    max_by(outcome, struct(at_ms, commit_id)) AS outcome,
    max_by(duration_ms, struct(at_ms, commit_id)) AS duration_ms
  FROM rw_catalog.operations
  WHERE entry = 'outcome'
  GROUP BY epoch
) AS result ON operation.epoch = result.epoch
LEFT JOIN (
  SELECT CAST(regexp_extract(statement, 'UNDO OPERATION (\\d+)', 1) AS BIGINT) AS epoch, max(epoch) AS undone_by
  FROM rw_catalog.operations
  WHERE entry = 'operation' AND kind = 'UNDO OPERATION'
  GROUP BY 1
) AS taken_back ON operation.epoch = taken_back.epoch;

CREATE VIEW rw_catalog.rw_event_logs AS
SELECT
  commit_id AS unique_id,
  timestamp_millis(at_ms) AS timestamp,
  CASE entry WHEN 'operation' THEN upper(replace(kind, ' ', '_')) ELSE 'OUTCOME' END AS event_type,
  to_json(named_struct(
    'epoch', epoch, 'statement', statement, 'objects', objects, 'actor', actor, 'reason', reason, 'is_unsafe', is_unsafe,
    'outcome', outcome, 'duration_ms', duration_ms
  )) AS info,
  epoch
FROM rw_catalog.operations
UNION ALL
SELECT
  concat(job, '/', run) AS unique_id,
  timestamp_millis(started_ms) AS timestamp,
  'JOB_STARTED' AS event_type,
  to_json(named_struct('job', job, 'run', run, 'epoch', epoch, 'owner', owner)) AS info,
  epoch
FROM (SELECT *, row_number() OVER (PARTITION BY job, run ORDER BY seq DESC) AS age FROM rw_catalog.runtime_runs)
WHERE age = 1
UNION ALL
SELECT
  concat(job, '@', seq) AS unique_id,
  timestamp_millis(updated_ms) AS timestamp,
  concat('JOB_', state) AS event_type,
  to_json(named_struct(
    'job', job, 'reason', reason, 'last_error', last_error, 'run', run, 'restarts', restarts
  )) AS info,
  NULL AS epoch
FROM rw_catalog.runtime_job_status
WHERE NOT is_dropped;

CREATE VIEW rw_catalog.rw_jobs AS
SELECT job, object_id, state, reason, last_error, run, restarts, timestamp_millis(updated_ms) AS updated_at
FROM (SELECT *, row_number() OVER (PARTITION BY job ORDER BY seq DESC) AS age FROM rw_catalog.runtime_job_status)
WHERE age = 1 AND NOT is_dropped;

CREATE VIEW rw_catalog.rw_runs AS
SELECT job, run, epoch, owner, timestamp_millis(started_ms) AS started_at
FROM (SELECT *, row_number() OVER (PARTITION BY job, run ORDER BY seq DESC) AS age FROM rw_catalog.runtime_runs)
WHERE age = 1;

CREATE VIEW rw_catalog.rw_positions AS
SELECT fragment, split, state, epoch, run, log_version
FROM (
  SELECT *, row_number() OVER (PARTITION BY fragment, split ORDER BY seq DESC) AS age
  FROM rw_catalog.runtime_positions
)
WHERE age = 1;

CREATE VIEW rw_catalog.rw_lease AS
SELECT
  owner,
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
