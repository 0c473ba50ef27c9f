# Runs an example from nothing on the embedded log; demo.sh of each example calls it:
#   play.sh FOLDER "OUTPUT-TOPIC…" [STREAMKIT]
set -euo pipefail
cd "$1"
OUTPUTS=$2
STREAMKIT=${3:-streamkit}
SHOWN=5
# A broker in the environment must not turn the demo into writes to it.
unset KAFKA
STATE_DIR=$(mktemp -d)
export STATE_DIR
trap 'rm -rf "$STATE_DIR"' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || say() { printf '\n%s\n' "$1"; }

say "1. The tests pass: streamkit test topology.yaml"
"$STREAMKIT" test topology.yaml

step=2
for records in records*.jsonl; do
    say "$step. $(wc -l < "$records") records go into their topics: streamkit produce topology.yaml < $records"
    "$STREAMKIT" produce topology.yaml < "$records"
    say "$((step + 1)). Everything is processed: streamkit run topology.yaml --until-idle"
    "$STREAMKIT" run topology.yaml --until-idle
    step=$((step + 2))
done

for topic in $OUTPUTS; do
    records=$("$STREAMKIT" consume topology.yaml "$topic" --until-idle)
    say "$step. The last of $(grep -c . <<< "$records") records: streamkit consume topology.yaml $topic --until-idle"
    tail -n "$SHOWN" <<< "$records"
    step=$((step + 1))
done
