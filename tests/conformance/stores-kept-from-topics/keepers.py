"""The processors of the topology, as the Java program has them."""


class Priced:
    def init(self, context):
        self.context = context

    def process(self, record):
        store, key = self.context.store, record.key
        seen = store("seen")
        seen.put(key, (seen.get(key) or 0) + 1)
        price, limit, rate = (store(name).get(key) or 0 for name in ("prices", "limits", "rates"))
        value = price * 1_000_000 + limit * 1_000 + rate * 10 + seen.get(key)
        self.context.forward(record.replace(value=value))


def converted(record, context):
    limit = context.store("limits").get(record.key)
    name = context.store("names").get(f"n{record.value}")
    value = record.value if limit is None else min(limit, record.value)
    return record.replace(value=value + 100 * len(name or ""))


def doubled(record, context):
    context.store("rates").put(record.key, None if record.value is None else record.value * 2)


def by_name(record, context):
    if record.key is not None and record.value is not None:
        context.store("names").put(record.value, record.key)


def cents(record, context):
    context.store("prices").put(record.key, None if record.value is None else record.value + 1)
