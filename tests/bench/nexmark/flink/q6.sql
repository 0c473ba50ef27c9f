CREATE TABLE output (
  seller BIGINT,
  average BIGINT,
  PRIMARY KEY (seller) NOT ENFORCED
) LIKE updated;

INSERT INTO output
WITH winning AS (
  SELECT *
  FROM (
    SELECT A.id, A.seller, B.price, B.`dateTime`,
      ROW_NUMBER() OVER (PARTITION BY A.id, A.seller ORDER BY B.price DESC, B.`dateTime` ASC) AS place
    FROM auction AS A
    JOIN bid AS B ON A.id = B.auction
    WHERE B.`dateTime` BETWEEN A.`dateTime` AND A.expires
  )
  WHERE place <= 1
), latest AS (
  SELECT *
  FROM (
    SELECT seller, price, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY `dateTime` DESC) AS age
    FROM winning
  )
  WHERE age <= 10
)
SELECT seller, AVG(price)
FROM latest
GROUP BY seller;
