"""Reads word counts as JSON Lines from stdin and shows the most frequent words as a bar chart."""

import json
import sys

SHOWN = 15
WIDTH = 40


def main() -> None:
    """Keep the last count of each word, as a reader of a changelog does, and print the largest."""
    counts: dict[str, int] = {}
    for line in sys.stdin:
        record = json.loads(line)
        if record["value"] is not None:
            counts[record["key"]] = record["value"]
    top = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:SHOWN]
    if not top:
        sys.exit("no counts arrived")
    longest = max(len(word) for word, _ in top)
    for word, count in top:
        bar = "█" * max(1, round(WIDTH * count / top[0][1]))
        print(f"{word:>{longest}}  {bar} {count}")
    print(f"\n{len(counts)} different words, {sum(counts.values())} in all")


if __name__ == "__main__":
    main()
