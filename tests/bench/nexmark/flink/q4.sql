CREATE TABLE output (
  category BIGINT,
  average BIGINT,
  PRIMARY KEY (category) NOT ENFORCED
) LIKE updated;

INSERT INTO output
SELECT category, AVG(final)
FROM (
  SELECT A.id, MAX(B.price) AS final, A.category
  FROM auction AS A
  JOIN bid AS B ON A.id = B.auction
  WHERE B.`dateTime` BETWEEN A.`dateTime` AND A.expires
  GROUP BY A.id, A.category
)
GROUP BY category;
