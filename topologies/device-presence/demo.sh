#!/usr/bin/env bash
exec bash "$(dirname "$0")/../play.sh" "$(dirname "$0")" "presence online" "$@"
