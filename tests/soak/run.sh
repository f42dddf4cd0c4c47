#!/bin/sh
# ./dev soak [ROUNDS]: kills the program at random moments, ROUNDS times (500) for each user, then
# makes and removes sandboxes for a while, and looks for what is left behind. After that what changes
# workspaces is killed, 200 times each, flows of 20 turns are killed 500 times for each user and agents with
# a model 100 times, and names are swapped under the program, 10,000 times.
# Then the egress process gets 50,000 connections, 1,000 new policies and 10,000 lookups; and, for a
# minute each, as many lookups as can be sent, and what nobody takes on a hundred connections.
# Then the daemon is killed 500 times under load, sandboxes are compared with a model for 5,000 steps,
# and 1,000 of them (150 as an ordinary user) are served to 50 clients for ten minutes.
# CARREL is the program; CARREL_KILLS, CARREL_FLOW_CRASHES, CARREL_AGENT_CRASHES, CARREL_RACES, CARREL_RACE_ROUNDS, CARREL_CONNECTIONS,
# CARREL_RELOADS, CARREL_LOOKUPS, CARREL_FLOOD_SECONDS, CARREL_DAEMON_KILLS, CARREL_MODEL_STEPS,
# CARREL_LIVE_ROOT, CARREL_LIVE_USER and CARREL_CROWD_SECONDS ask for other numbers; CARREL_SOAK=flows
# is the part with flows and agents alone, CARREL_SOAK=daemon the one from the daemon's kills on.
set -eu
: "${CARREL:?is the path of the program}"
tests=$(dirname "$CARREL")/tests
export CARREL_BINARY="$CARREL"

soak_daemon() {
  CARREL_DAEMON_KILLS="${CARREL_DAEMON_KILLS:-500}" \
    "$tests/end_to_end/end_to_end_serve_test" --gtest_filter='*KillsUnderLoad*'
  CARREL_MODEL_STEPS="${CARREL_MODEL_STEPS:-5000}" "$tests/end_to_end/end_to_end_model_test"
  python3 -B "$(dirname "$0")/many.py" "$CARREL" "${CARREL_LIVE_ROOT:-1000}" \
    "${CARREL_LIVE_USER:-150}" "${CARREL_CROWD_SECONDS:-600}"
}
soak_flows() {
  CARREL_FLOW_CRASHES="${CARREL_FLOW_CRASHES:-500}" "$tests/crash/crash_flow_kill_test"
  CARREL_AGENT_CRASHES="${CARREL_AGENT_CRASHES:-100}" "$tests/crash/crash_agent_kill_test"
}
case ${CARREL_SOAK:-} in
  daemon | flows)
    "soak_$CARREL_SOAK"
    exit
    ;;
esac

python3 -B "$(dirname "$0")/soak.py" "$CARREL" "${1:-500}"
export CARREL_KILLS="${CARREL_KILLS:-200}"
export CARREL_RACES="${CARREL_RACES:-10000}"
export CARREL_RACE_ROUNDS="${CARREL_RACE_ROUNDS:-10000}"
"$tests/crash/crash_workspace_kill_test"
soak_flows
"$tests/attacks/attack_mount_attacks_test" --gtest_filter='*C03_*'
"$tests/attacks/attack_files_api_attacks_test" --gtest_filter='*B05_*'
export CARREL_CONNECTIONS="${CARREL_CONNECTIONS:-50000}"
export CARREL_RELOADS="${CARREL_RELOADS:-1000}"
export CARREL_LOOKUPS="${CARREL_LOOKUPS:-10000}"
export CARREL_FLOOD_SECONDS="${CARREL_FLOOD_SECONDS:-60}"
"$tests/attacks/attack_egress_life_attacks_test" --gtest_filter='*D29_*:*D40_*'
"$tests/attacks/attack_egress_names_attacks_test" --gtest_filter='*D09_*'
soak_daemon
