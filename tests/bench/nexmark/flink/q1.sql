CREATE TABLE output (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel STRING,
  url STRING,
  `dateTime` BIGINT,
  extra STRING
) LIKE appended;

INSERT INTO output
SELECT auction, bidder, price * 908 / 1000, channel, url, `dateTime`, extra
FROM bid;
