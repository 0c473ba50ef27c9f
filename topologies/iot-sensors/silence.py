"""Notices sensors that say nothing for two minutes, and those that are back."""

from streamkit.record import Record

QUIET_MS = 120_000


class Silence:
    """Keeps when each sensor was last heard; every 30 s of event time it looks for those that are overdue.

    Event time moves with the readings of all sensors of a partition, so that a replay of old readings alarms as the
    original did. Where a whole partition may fall silent, schedule "wall_clock" instead.
    """

    def init(self, context):
        self.context = context
        self.last_seen = context.store("last-seen")
        self.silent = context.store("silent")
        context.schedule("30s", "stream_time", self.look)

    def process(self, record):
        seen = self.last_seen.get(record.key)
        if seen is None or record.timestamp > seen:
            self.last_seen.put(record.key, record.timestamp)
        since = self.silent.get(record.key)
        # A late reading from before the silence does not end it.
        if since is not None and record.timestamp > since:
            self.silent.delete(record.key)
            away = (record.timestamp - since) // 1000
            self.context.forward(record.replace(value={"alert": "back", "after_s": away}))

    def look(self, now):
        for sensor, seen in self.last_seen.all():
            if now - seen >= QUIET_MS and self.silent.get(sensor) is None:
                self.silent.put(sensor, seen)
                self.context.forward(Record(sensor, {"alert": "silent", "since": seen}, now))
