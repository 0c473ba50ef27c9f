CREATE TABLE output (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  `dateTime` BIGINT,
  extra STRING,
  dt STRING,
  hm STRING
) LIKE appended;

INSERT INTO output
SELECT auction, bidder, price, `dateTime`, extra, DATE_FORMAT(ts, 'yyyy-MM-dd'), DATE_FORMAT(ts, 'HH:mm')
FROM bid;
