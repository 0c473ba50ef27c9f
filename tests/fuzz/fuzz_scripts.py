"""Processors that a topology writes down as a name; java/Scripts.java has the same in Java. Copied beside each file.

`S__STORE__KEYS__UNIT__OP__OP…`: for each record the operations run in turn on the store, and what they give is
forwarded as a list. KEYS is the type of its keys, UNIT the milliseconds that the numbers of operations stand for.
"""

KEYS = {
    "string": ["a", "b", "c", "d"],
    "long": [0, 1, 2, 3],
    "double": [-2.0, -0.0, 0.0, 1.5],
    "json": [True, 1, 1.0, "a"],
}


def __getattr__(name):
    if name.startswith("K__"):
        return lambda record, context: keep(record, context.store(stored(name[3:])))
    if not name.startswith("S__"):
        raise AttributeError(name)
    _, store, keys, unit, *operations = name.split("__")
    fields = {"store_name": stored(store), "keys": KEYS[keys], "unit": int(unit), "operations": operations}
    made = globals()[name] = type(name, (Script,), fields)
    return made


def stored(name):
    """The name of a store: those of steps have hyphens, which names of Python have not."""
    return name.replace("_", "-")


def keep(record, store):
    """For global stores: every row but those of odd times, which delete."""
    if record.key is not None:
        store.put(record.key, None if record.timestamp & 1 else record.value)


class Script:
    def init(self, context):
        self.context = context
        self.store = None if self.store_name == "none" else context.store(self.store_name)
        self.last = None
        self.count = 0
        self.steps = []
        for number, operation in enumerate(self.operations):
            word, *arguments = operation.split("_")
            if word in ("ts", "tw"):
                self.timer(number, int(arguments[0]), "stream_time" if word == "ts" else "wall_clock", arguments[1])
            else:
                self.steps.append((word, [int(argument) for argument in arguments]))

    def timer(self, label, units, kind, action):
        def fire(timestamp):
            if action == "c":
                timers[0].cancel()
            found = self.run(self.keys[0], timestamp) if action == "r" else []
            if self.last is not None:
                self.context.forward(self.last.replace(value=[label, timestamp, *found], timestamp=timestamp))

        timers = [self.context.schedule(units * self.unit, kind, fire)]

    def process(self, record):
        self.last = record
        if record.key is None:
            self.context.forward(record.replace(value=["no key"]))
            return
        self.count += 1
        self.context.forward(record.replace(value=self.run(record.key, record.timestamp)))

    def run(self, key, time):
        return [getattr(self, f"do_{word}")(key, time, *arguments) for word, arguments in self.steps]

    def before(self, time, units):
        return max(0, time - units * self.unit)

    # -- any store --

    def do_where(self, key, time):
        context = self.context
        return [context.topic, context.partition, context.offset, context.stream_time, context.wall_clock]

    def do_commit(self, key, time):
        self.context.commit()

    def do_later(self, key, time):
        if self.last is not None:  # timers may come first
            self.context.forward(self.last.replace(value=["later"], timestamp=self.last.timestamp + 1))

    def do_to(self, key, time, child):
        if self.last is not None:
            self.context.forward(self.last.replace(value=["to", child], timestamp=time), to=f"kid{child}")

    def do_rekey(self, key, time, at):
        if self.last is not None:
            self.context.forward(self.last.replace(key=self.keys[at], value=["rekey"]))

    def do_spawn(self, key, time, units):
        if self.count <= 3:
            self.timer(100 + self.count, units, "stream_time", "n")

    # -- key_value --

    def do_get(self, key, time):
        return self.store.get(key)

    def do_put(self, key, time):
        self.store.put(key, self.count)

    def do_clear(self, key, time):
        self.store.put(key, None)

    def do_absent(self, key, time):
        return self.store.put_if_absent(key, self.count)

    def do_delete(self, key, time):
        return self.store.delete(key)

    def do_range(self, key, time, low, high, reverse):
        rows = self.store.range(self.bound(low), self.bound(high), reverse=bool(reverse))
        return [[key, value] for key, value in rows]

    def do_prefix(self, key, time, at):
        return [[key, value] for key, value in self.store.prefix(self.keys[at])]

    def do_all(self, key, time, reverse):
        return [self.row(key, value) for key, value in self.store.all(reverse=bool(reverse))]

    def bound(self, at):
        return None if at == 9 else self.keys[at]

    def row(self, key, value):
        return [key.key, key.start, key.end, value] if hasattr(key, "start") else [key, value]

    # -- window --

    def do_wput(self, key, time, ago):
        self.store.put(key, self.count, self.before(time, ago))

    def do_wclear(self, key, time, ago):
        self.store.put(key, None, self.before(time, ago))

    def do_wget(self, key, time, ago):
        return self.store.fetch(key, self.before(time, ago))

    def do_wfetch(self, key, time, ago, reverse):
        found = self.store.fetch(key, self.before(time, ago), time, reverse=bool(reverse))
        return [[start, value] for start, value in found]

    def do_wfetchall(self, key, time, ago, reverse):
        found = self.store.fetch_all(self.before(time, ago), time, reverse=bool(reverse))
        return [self.row(key, value) for key, value in found]

    # -- session --

    def do_sput(self, key, time, ago):
        self.store.put(key, self.before(time, ago), time, self.count)

    def do_sclear(self, key, time, ago):
        self.store.put(key, self.before(time, ago), time, None)

    def do_sremove(self, key, time, ago):
        self.store.remove(key, self.before(time, ago), time)

    def do_sfetch(self, key, time, reverse):
        return [self.row(key, value) for key, value in self.store.fetch(key, reverse=bool(reverse))]

    def do_sfind(self, key, time, ago, reverse):
        found = self.store.find(key, self.before(time, ago), time, reverse=bool(reverse))
        return [self.row(key, value) for key, value in found]

    # -- versioned --

    def do_vput(self, key, time, ago):
        return self.store.put(key, self.count, self.before(time, ago))

    def do_vclear(self, key, time, ago):
        return self.store.put(key, None, self.before(time, ago))

    def do_vdelete(self, key, time, ago):
        return self.version(self.store.delete(key, self.before(time, ago)))

    def do_vget(self, key, time):
        return self.version(self.store.get(key))

    def do_vasof(self, key, time, ago):
        return self.version(self.store.get(key, self.before(time, ago)))

    def version(self, found):
        return None if found is None else list(found)
