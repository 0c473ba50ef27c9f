"""Values of tables that look at their context, and at a store."""


def mark(key, value, context):
    if value is None:
        return f"absent {context.timestamp}" if key == "c" else None
    return f"{value} {context.timestamp} {'null' if context.topic is None else context.topic} {context.offset}"


class Counted:
    def init(self, context):
        self.seen = context.store("seen")

    def transform(self, key, value):
        now = (self.seen.get(key) or 0) + 1
        self.seen.put(key, now)
        return None if value is None else f"{value} #{now}"
