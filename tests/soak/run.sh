#!/bin/sh
# ./dev soak [ROUNDS]: kills the program at random moments, ROUNDS times (500) for each user, then
# makes and removes sandboxes for a while, and looks for what is left behind. CARREL is the program.
set -eu
: "${CARREL:?is the path of the program}"
exec python3 -B "$(dirname "$0")/soak.py" "$CARREL" "${1:-500}"
