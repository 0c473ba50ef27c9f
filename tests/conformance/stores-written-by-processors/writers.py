"""The processor of the topology, as the Java program has it: values go without their timestamps."""


class Writer:
    def init(self, context):
        self.context = context
        names = ("counts", "uncached", "rows", "per-minute")
        self.counts, self.uncached, self.rows, self.per_minute = map(context.store, names)

    def process(self, record):
        key, value = record.key, record.value
        found = [store.get(key) for store in (self.counts, self.uncached, self.rows)]
        found.append(self.per_minute.fetch(key, 0))
        if value is None:
            self.counts.delete(key)
            self.uncached.put(key, None)
        else:
            self.counts.put(key, value)
            self.uncached.put(key, value)
            self.rows.put(key, value)
            self.per_minute.put(key, value, 0)
        self.context.forward(record.replace(value=" ".join(map(str, found))))
