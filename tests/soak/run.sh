#!/bin/sh
# ./dev soak [ROUNDS]: kills the program at random moments, ROUNDS times (500) for each user, then
# makes and removes sandboxes for a while, and looks for what is left behind. After that what changes
# workspaces is killed, 200 times each, and names are swapped under the program, 10,000 times.
# Then the egress process gets 50,000 connections, 1,000 new policies and 10,000 lookups; and, for a
# minute each, as many lookups as can be sent, and what nobody takes on a hundred connections.
# CARREL is the program; CARREL_KILLS, CARREL_RACES, CARREL_RACE_ROUNDS, CARREL_CONNECTIONS,
# CARREL_RELOADS, CARREL_LOOKUPS and CARREL_FLOOD_SECONDS ask for other numbers.
set -eu
: "${CARREL:?is the path of the program}"
python3 -B "$(dirname "$0")/soak.py" "$CARREL" "${1:-500}"

tests=$(dirname "$CARREL")/tests
export CARREL_BINARY="$CARREL"
export CARREL_KILLS="${CARREL_KILLS:-200}"
export CARREL_RACES="${CARREL_RACES:-10000}"
export CARREL_RACE_ROUNDS="${CARREL_RACE_ROUNDS:-10000}"
"$tests/crash/crash_workspace_kill_test"
"$tests/attacks/attack_mount_attacks_test" --gtest_filter='*C03_*'
"$tests/attacks/attack_files_api_attacks_test" --gtest_filter='*B05_*'
export CARREL_CONNECTIONS="${CARREL_CONNECTIONS:-50000}"
export CARREL_RELOADS="${CARREL_RELOADS:-1000}"
export CARREL_LOOKUPS="${CARREL_LOOKUPS:-10000}"
export CARREL_FLOOD_SECONDS="${CARREL_FLOOD_SECONDS:-60}"
"$tests/attacks/attack_egress_life_attacks_test" --gtest_filter='*D29_*:*D40_*'
"$tests/attacks/attack_egress_names_attacks_test" --gtest_filter='*D09_*'
