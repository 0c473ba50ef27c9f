CREATE TABLE output (
  bidder BIGINT,
  number BIGINT,
  starttime TIMESTAMP(3)
) LIKE appended;

INSERT INTO output
SELECT bidder, COUNT(*), window_start
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
