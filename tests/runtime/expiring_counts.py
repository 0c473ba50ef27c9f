"""A topology whose counts end one second after their last record, for tests of rows with a time to live."""

COUNT = """
streamkit: 1
application: app
topics:
  in: {key: string, value: string, partitions: 2}
  out: {key: string, value: long, partitions: 1}
pipelines:
  p:
    stream: in
    steps:
      - group_by_key
      - count: {store: {name: counts, ttl: 1s}}
      - to_stream
    to: out
"""
