CREATE TABLE output (
  auction BIGINT,
  num BIGINT,
  starttime TIMESTAMP(3)
) LIKE appended;

INSERT INTO output
WITH counts AS (
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
), highest AS (
    SELECT MAX(num) AS num, window_start, window_end
    FROM counts
    GROUP BY window_start, window_end
)
SELECT counts.auction, counts.num, counts.window_start
FROM counts
JOIN highest ON counts.window_start = highest.window_start AND counts.window_end = highest.window_end
WHERE counts.num >= highest.num;
