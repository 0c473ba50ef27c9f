CREATE TABLE output (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel STRING,
  url STRING,
  `dateTime` BIGINT,
  extra STRING,
  PRIMARY KEY (auction, bidder) NOT ENFORCED
) LIKE updated;

INSERT INTO output
SELECT auction, bidder, price, channel, url, `dateTime`, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS age
  FROM bid
)
WHERE age <= 1;
