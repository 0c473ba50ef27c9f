CREATE TABLE output (
  auction BIGINT,
  price BIGINT
) LIKE appended;

INSERT INTO output
SELECT auction, price
FROM bid
WHERE MOD(auction, 123) = 0;
