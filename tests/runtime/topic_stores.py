"""A topology whose stores are kept from topics, and its processors."""

from __future__ import annotations

TOPOLOGY = """streamkit: 1
application: app
config: {statestore.cache.max.bytes: 0, state.dir: "${DIR}", max.task.idle.ms: 0}
defaults: {key: string, value: string}
topics:
  rates: {partitions: 2}
  prices: {partitions: 1}
  words: {partitions: 1}
  out: {partitions: 1}
stores:
  rates: {type: key_value}
  prices: {type: key_value}
pipelines:
  rates: {global_store: rates, store: rates, process: "keepers:Rates"}
  prices: {read_only_store: prices, store: prices, process: "keepers:prices"}
  words:
    stream: words
    steps: [process: {call: "keepers:look", stores: [prices]}]
    to: out
"""
PROCESSORS = """
class Rates:
    def init(self, context):
        self.rates, self.seen = context.store("rates"), []

    def process(self, record):
        self.seen.append(str(record.key))
        self.rates.put("seen", ",".join(sorted(self.seen)))
        if record.key is not None:
            self.rates.put(record.key, record.value.upper())

def prices(record, context):
    context.store("prices").put(record.key, record.value + "!")

def look(record, context):
    rates, prices = context.store("rates"), context.store("prices")
    found = [rates.get(record.key), prices.get(record.key), rates.get("seen")]
    return record.replace(value=" ".join(map(str, found)))
"""
