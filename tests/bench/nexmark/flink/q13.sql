CREATE TABLE output (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  `dateTime` BIGINT,
  `value` STRING
) LIKE appended;

INSERT INTO output
SELECT auction, bidder, price, `dateTime`, `value`
FROM bid, LATERAL TABLE(SIDE_INPUT(MOD(auction, 10000))) AS side(`value`);
