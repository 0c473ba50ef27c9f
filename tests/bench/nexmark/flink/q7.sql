CREATE TABLE output (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  `dateTime` BIGINT,
  starttime TIMESTAMP(3)
) LIKE appended;

INSERT INTO output
SELECT B.auction, B.bidder, B.price, B.`dateTime`, H.window_start
FROM bid AS B
JOIN (
  SELECT MAX(price) AS price, window_start, window_end
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS H ON B.price = H.price
WHERE CAST(B.ts AS TIMESTAMP(3)) >= H.window_start AND CAST(B.ts AS TIMESTAMP(3)) < H.window_end;
