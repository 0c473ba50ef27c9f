#!/usr/bin/env bash
# Counts the words of lines.txt on the embedded log, from nothing: `make demo` calls it with the command to use.
set -euo pipefail
cd "$(dirname "$0")"

STREAMKIT=${1:-streamkit}
PYTHON=${2:-python3}
# A broker in the environment must not turn the demo into writes to it.
unset KAFKA
STATE_DIR=$(mktemp -d)
export STATE_DIR
trap 'rm -rf "$STATE_DIR"' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || say() { printf '\n%s\n' "$1"; }

say "1. The topology is valid: streamkit validate topology.yaml"
"$STREAMKIT" validate topology.yaml

say "2. $(wc -l < lines.txt) lines of text go into the topic 'lines': streamkit produce topology.yaml lines --lines"
"$STREAMKIT" produce topology.yaml lines --lines < lines.txt

say "3. Two threads count until everything is read: streamkit run topology.yaml --until-idle"
"$STREAMKIT" run topology.yaml --until-idle

say "4. The most frequent words: streamkit consume topology.yaml word-counts --until-idle"
"$STREAMKIT" consume topology.yaml word-counts --until-idle | "$PYTHON" top.py
