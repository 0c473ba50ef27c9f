CREATE TABLE output (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  bidTimeType STRING,
  `dateTime` BIGINT,
  extra STRING,
  c_counts BIGINT
) LIKE appended;

INSERT INTO output
SELECT auction, bidder, price * 908 / 1000,
  CASE
    WHEN HOUR(ts) >= 8 AND HOUR(ts) <= 18 THEN 'dayTime'
    WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END,
  `dateTime`, extra, COUNT_CHAR(extra, 'c')
FROM bid
WHERE price * 908 > 1000000000 AND price * 908 < 50000000000;
