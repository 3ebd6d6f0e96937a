-- The same move as in flights.sql, without Kafka or a network: datagen generates rows that are numbered from 0.

SET statement_timeout = '3min';

CREATE SOURCE numbers (id BIGINT, amount INT)
WITH (
    connector = 'datagen',
    datagen.rows.total = '20000',
    datagen.split.num = '3',
    datagen.seed = '7',
    fields.id.kind = 'sequence',
    fields.id.start = '0'
);

CREATE MATERIALIZED VIEW all_rows AS
SELECT id, amount FROM numbers;

CREATE MATERIALIZED VIEW per_group AS
SELECT id % 16 AS group_id, count(*) AS rows, avg(amount) AS mean_amount FROM numbers GROUP BY id % 16;

FLUSH;

SHOW SOURCE SPLITS numbers;

SHOW CREATE SOURCE numbers;

-- The new upstream has four splits and 32,000 rows; reading it from row 19,500 on repeats 500 rows.

ALTER SYSTEM SET enable_unsafe_ops = true;

PAUSE SOURCE numbers REASON 'another upstream';

EXPLAIN ALTER SOURCE numbers UNSAFE SET (datagen.split.num = '4', datagen.rows.total = '32000');

ALTER SOURCE numbers UNSAFE SET (datagen.split.num = '4', datagen.rows.total = '32000');

RESET SOURCE SPLITS numbers;

INJECT SOURCE OFFSETS numbers VALUES ('4-0' = 4875, '4-1' = 4875, '4-2' = 4875, '4-3' = 4875)
ALLOW GAPS;

RESUME SOURCE numbers;

FLUSH;

SHOW SOURCE SPLITS numbers;

SHOW CREATE SOURCE numbers;

SELECT count(*) - count(DISTINCT id) AS repeated FROM all_rows;

SHOW UNSAFE OPERATIONS FOR numbers;

SHOW JOBS;
