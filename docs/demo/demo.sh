#!/bin/sh
# The main job: an agent works in a room of its own for two turns. The program "crashes" between
# them, and the next run goes on where it was, with the files. Then three things that a bad agent
# might try. Without a model: its answers are in docs/demo/script.toml. With CARREL_MODEL (such as
# anthropic:NAME) and the key of its provider in the environment, the same runs live.
# Uses a throw-away CARREL_HOME and leaves nothing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
carrel=${CARREL:-build/carrel}
CARREL_HOME=$(mktemp -d)
export CARREL_HOME
finish() {
  "$carrel" rm --all --force >/dev/null 2>&1 || true
  rm -rf "$CARREL_HOME"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

show() { sed 's/^/  /'; }

# The agent, with a recorded model or a real one.
agent() {
  if [ -n "${CARREL_MODEL:-}" ]; then
    "$carrel" agent run --file "$here/flow.toml"
  else
    "$carrel" agent run --file "$here/flow.toml" --script "$here/script.toml"
  fi
}

# attempt "what it tries" command...: shows the attempt and keeps its status and output.
attempt() {
  printf '\n  %s\n' "$1"
  shift
  status=0
  output=$("$@" 2>&1) || status=$?
  printf '%s\n' "$output" | cut -c1-100 | tail -n 2 | sed 's/^/          /'
  if [ "$status" = 125 ]; then
    printf '          -> NOT TRIED: there was no sandbox\n'
    exit 1
  fi
}

# contained "why" test...: says that the room held, or ends the demo.
contained() {
  why=$1
  shift
  if "$@"; then
    printf '          -> contained: %s\n' "$why"
  else
    printf '          -> NOT CONTAINED (exit %s)\n' "$status"
    exit 1
  fi
}

if ! "$carrel" run -- true; then
  printf 'There is no sandbox on this host, so there is nothing to show. What is in the way:\n'
  "$carrel" doctor | grep -v '^ok ' || true
  exit 1
fi

say 'Two turns of an agent, and a crash after the first (FORCE_FAILURE=1)'
{ FORCE_FAILURE=1 agent 2>&1 || true; } | show

say 'The same command again: turn 1 comes from the journal with its files, turn 2 runs'
agent 2>&1 | show

say 'What happened, turn by turn'
"$carrel" flow show demo | show

say 'What turn 2 changed in the workspace'
"$carrel" flow diff demo default_2 | show

say 'Three things that a bad agent might try'
canary=$CARREL_HOME/canary
printf 'secret-of-the-host\n' > "$canary"
attempt "1. Read the host: every file named 'canary', and the host's shadow file" \
  "$carrel" run -- bash -c 'find / -name canary -exec cat {} + 2>/dev/null; cat /etc/shadow'
contained 'neither is there' [ "${output#*secret-of-the-host}" = "$output" ]
attempt '2. Fork bomb (512 processes are allowed)' \
  "$carrel" run --timeout 3 -- bash -c ': fork-bomb; b() { b | b & }; b; wait'
contained 'not one of its processes is left' [ "$(pgrep -fc 'fork-bomb' || true)" = 0 ]
attempt '3. Take 2 GB of memory (512 MB are allowed)' \
  "$carrel" run --timeout 20 -- python3 -c 'x = bytearray(2 * 1024**3); print("got it")'
contained 'ended by the limit' [ "$status" = 137 ]

say 'The host is fine, and nothing is left'
"$carrel" ls | show
