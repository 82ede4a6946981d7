#!/bin/sh
# The whole way in a few seconds: two recorded runs are played as if they were the agent. Each is run with a live line and
# gets its verdict; then the ledger's rows and a report. All of it happens in a folder that is removed at the end.
# Usage: examples/demo.sh [STENO], from the root of a clone.
set -eu
steno=${1:-steno}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM
export XDG_DATA_HOME="$place/data" XDG_CONFIG_HOME="$place/config"
unset STENO_LEDGER

show() {
    printf '\n$ steno'
    for word; do case $word in *' '*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac; done
    printf '\n'
    "$steno" "$@"
}

echo "HP, below, is the part of the model's context window that is still free."
show run --agent replay --tape src/steno/demo/finished --speed 0.3 "tidy up the project"
show run --agent replay --tape src/steno/demo/refused --speed 0.3 --feed "write a file" || echo "(exit code $?: not finished)"
show runs --no-import
show report --no-import
