CREATE TABLE output (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel STRING,
  url STRING,
  bid_dateTime BIGINT,
  bid_extra STRING,
  itemName STRING,
  description STRING,
  initialBid BIGINT,
  reserve BIGINT,
  auction_dateTime BIGINT,
  expires BIGINT,
  seller BIGINT,
  category BIGINT,
  auction_extra STRING
) LIKE appended;

INSERT INTO output
SELECT auction, bidder, price, channel, url, B.`dateTime`, B.extra,
  itemName, description, initialBid, reserve, A.`dateTime`, expires, seller, category, A.extra
FROM bid AS B
JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10;
