#!/usr/bin/env bash
# Starts the price service, and the demo below it.
HERE=$(dirname "$0")
exec "${2:-python3}" "$HERE/price_service.py" bash "$HERE/../play.sh" "$HERE" "priced largest" "$@"
