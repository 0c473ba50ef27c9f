"""The scenarios on Quix Streams; runs in an environment of its own and until SIGTERM.

python with_quix.py SCENARIO BOOTSTRAP GROUP INPUT OUTPUT PROGRESS STATE
"""

import sys

from quixstreams import Application
from quixstreams.models import BytesSerializer


def main(name, bootstrap, group, source, output, progress, state):
    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=state,
        loglevel="ERROR",
        auto_create_topics=True,
    )
    value = "json" if name == "json" else "string"
    stream = app.dataframe(app.topic(source, key_deserializer="string", value_deserializer=value))
    out = app.topic(output, key_serializer="string", value_serializer="json" if name == "json" else BytesSerializer())
    if name == "stateless":
        stream.filter(lambda text: text[0] < "n").apply(lambda text: text.upper().encode()).to_topic(out)
    elif name == "json":
        stream = stream.filter(lambda request: request["took"] >= 200)
        stream.apply(lambda request: {**request, "slow": request["took"] > 1000}).to_topic(out)
    else:
        marks = app.topic(progress, key_serializer="string", value_serializer="string")
        stream.filter(lambda text: text[0] == "@").to_topic(marks)
        stream.apply(count, stateful=True).to_topic(out)
    app.run()


def count(text, state):
    number = state.get("count", 0) + 1
    state.set("count", number)
    return number.to_bytes(8, "big")


if __name__ == "__main__":
    main(*sys.argv[1:])
