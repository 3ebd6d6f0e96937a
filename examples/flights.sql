-- The flights that left New York in 2013: January's are in topic flights_v1, February's in flights_v2.
-- make demo starts a broker, fills the topics and runs this file; examples/demo.py checks the results.

-- A statement stops waiting if no job makes progress for this time. A small machine may need more than 60 s, the default.
SET statement_timeout = '3min';

CREATE SOURCE flights (
    day DATE,
    carrier VARCHAR,
    flight INT,
    origin VARCHAR,
    destination VARCHAR,
    delay INT,
    distance INT
)
INCLUDE key AS flight_key
INCLUDE partition AS from_partition
WITH (
    connector = 'kafka',
    properties.bootstrap.server = '127.0.0.1:19092',
    topic = 'flights_v1',
    scan.startup.mode = 'earliest'
)
FORMAT PLAIN ENCODE JSON;

CREATE MATERIALIZED VIEW departures AS
SELECT day, carrier, flight, origin, destination, delay FROM flights;

CREATE MATERIALIZED VIEW carrier_delays AS
SELECT carrier, count(*) AS departures, avg(delay) AS mean_delay FROM flights GROUP BY carrier;

CREATE MATERIALIZED VIEW late_departures AS
SELECT day, carrier, flight, origin, delay FROM flights WHERE delay > 60;

-- FLUSH returns when the views contain everything that the topic contains now.
FLUSH;

SELECT carrier, departures, round(mean_delay, 1) AS mean_delay FROM carrier_delays ORDER BY departures DESC LIMIT 5;

SHOW SOURCE SPLITS flights;

SHOW CREATE SOURCE flights;

-- The producers move to flights_v2, which has four partitions and begins with January's last 1,000 departures, 250 in
-- each partition. The source moves too, and no view is dropped. Reading from offset 125 on repeats 500 departures.

ALTER SYSTEM SET enable_unsafe_ops = true;

PAUSE SOURCE flights REASON 'producers move to flights_v2';

EXPLAIN ALTER SOURCE flights UNSAFE SET (topic = 'flights_v2');

ALTER SOURCE flights UNSAFE SET (topic = 'flights_v2');

RESET SOURCE SPLITS flights;

INJECT SOURCE OFFSETS flights VALUES (
    'flights_v2:0' = 125,
    'flights_v2:1' = 125,
    'flights_v2:2' = 125,
    'flights_v2:3' = 125
) ALLOW GAPS;

RESUME SOURCE flights;

FLUSH;

SHOW SOURCE SPLITS flights;

SHOW CREATE SOURCE flights;

SELECT carrier, departures, round(mean_delay, 1) AS mean_delay FROM carrier_delays ORDER BY departures DESC LIMIT 5;

SELECT count(*) - count(DISTINCT day, carrier, flight, origin) AS repeated FROM departures;

SHOW UNSAFE OPERATIONS FOR flights;

SHOW JOBS;
