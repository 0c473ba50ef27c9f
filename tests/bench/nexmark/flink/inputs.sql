-- What the queries share: each kind of events with its topic, and two bases of the table `output`.
CREATE TABLE source WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = '${bootstrap}',
  'properties.group.id' = '${application}',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset',
  'format' = 'json'
);

CREATE TABLE appended WITH (
  'connector' = 'kafka',
  'topic' = '${output}',
  'properties.bootstrap.servers' = '${bootstrap}',
  'properties.transaction.timeout.ms' = '900000',
  'sink.delivery-guarantee' = '${guarantee}',
  'sink.transactional-id-prefix' = '${application}',
  'format' = 'json'
);

CREATE TABLE updated WITH (
  'connector' = 'upsert-kafka',
  'topic' = '${output}',
  'properties.bootstrap.servers' = '${bootstrap}',
  'properties.transaction.timeout.ms' = '900000',
  'sink.delivery-guarantee' = '${guarantee}',
  'sink.transactional-id-prefix' = '${application}',
  'key.format' = 'json',
  'value.format' = 'json'
);

CREATE TABLE person (
  id BIGINT,
  name STRING,
  emailAddress STRING,
  creditCard STRING,
  city STRING,
  state STRING,
  `dateTime` BIGINT,
  extra STRING,
  ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3),
  WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH ('topic' = '${persons}') LIKE source;

CREATE TABLE auction (
  id BIGINT,
  itemName STRING,
  description STRING,
  initialBid BIGINT,
  reserve BIGINT,
  `dateTime` BIGINT,
  expires BIGINT,
  seller BIGINT,
  category BIGINT,
  extra STRING,
  ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3),
  WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH ('topic' = '${auctions}') LIKE source;

CREATE TABLE bid (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel STRING,
  url STRING,
  `dateTime` BIGINT,
  extra STRING,
  ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3),
  WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH ('topic' = '${bids}') LIKE source;
