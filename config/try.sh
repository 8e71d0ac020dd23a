#!/bin/sh
# What `make run` does: one daemon on the default configuration, one listing, one call, one shutdown.
# Everything it needs lies in a folder that is removed at the end.
set -eu
here=$(dirname "$0")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TREADLE_SOCKET="$scratch/run/treadle.sock" XDG_STATE_HOME="$scratch/state"

say() { printf '\n$ %s\n' "$*"; "$@"; }

printf '$ treadle serve --config config/treadle.toml &\n'
treadle serve --config "$here/treadle.toml" 2>"$scratch/log" &
daemon=$!
trap 'kill "$daemon" 2>/dev/null || true; cat "$scratch/log" >&2; rm -rf "$scratch"' EXIT INT TERM
treadle wait --timeout 30
say treadle list demo
say treadle call demo add a=1 b=2
say treadle status
say treadle shutdown
wait "$daemon"
trap 'rm -rf "$scratch"' EXIT
printf '\nthe daemon and its server have ended\n'
