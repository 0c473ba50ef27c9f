"""The callables that the drawn topologies name; java/Processors.java has the same in Java. Copied beside each file."""


def twice(record, context):
    yield record
    yield record.replace(timestamp=record.timestamp + 1)


def again(record, context):
    """For process_values."""
    yield record
    yield record


def marked(key, value, context):
    """For process_values of tables: it is asked for rows that are not there, too."""
    if value is None:
        return "gone" if context.timestamp & 1 else None
    return f"{context.timestamp} {context.topic is None} {context.offset}"


def ignore(key, value):
    return None


def odd(key, value):
    return len(str(value)) % 2 == 1


def text(key, value):
    return str(value)[:4]


def letter(key, value):
    return str(value)[:1]


def last(aggregate, value):
    return value


def one_more(key, value, aggregate):
    return (aggregate or 0) + 1


def right_one(key, left, right):
    return right


def pair(key, left, right):
    return [left, right]


def two(left, right):
    return [left, right]


class Seen:
    """Passes on how often a key came, and at times of the stream clock the rows of the store, which it empties."""

    def init(self, context):
        self.context = context
        self.seen = context.store("seen")
        self.last = None
        context.schedule(50, "stream_time", self.expire)

    def process(self, record):
        self.last = record
        key = record.key or "none"
        self.seen.put(key, (self.seen.get(key) or 0) + 1)
        self.context.forward(record.replace(value=self.seen.get(key)))

    def expire(self, timestamp):
        for key, count in list(self.seen.all()):
            self.seen.delete(key)
            self.context.forward(self.last.replace(key=key, value=-count, timestamp=timestamp))


class Tick:
    """Passes records on, and at times of the wall clock the last one again."""

    def init(self, context):
        self.context = context
        self.last = None
        context.schedule("10s", "wall_clock", self.tick)

    def process(self, record):
        self.last = record
        self.context.forward(record)

    def tick(self, timestamp):
        if self.last is not None:
            self.context.forward(self.last.replace(timestamp=timestamp))
