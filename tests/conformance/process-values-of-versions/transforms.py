"""Values of tables that look at their context, and one that another table's key is in."""


def mark(key, value, context):
    if value is None:
        return f"absent {context.timestamp}" if key == "c" else None
    return f"{value} {context.timestamp} {'null' if context.topic is None else context.topic} {context.offset}"


def reference(key, value):
    return None if value is None else value[:1]
