"""Processors of the topology beside this file."""

KEPT_MS = 3_600_000


class Deduplicate:
    """Passes on the first record of each key, and forgets the key an hour later."""

    def init(self, context):
        self.context, self.seen = context, context.store("seen")
        context.schedule("10m", "stream_time", self.forget)

    def process(self, record):
        if self.seen.put_if_absent(record.key, record.timestamp) is None:
            self.context.forward(record)

    def forget(self, timestamp):
        for key, first in list(self.seen.all()):
            if first < timestamp - KEPT_MS:
                self.seen.delete(key)
