#!/bin/sh
# The main job, without a model: a scripted agent works in a room of its own for two turns, then
# tries three things that a bad agent might try, and a network of one server. Uses a throw-away
# CARREL_HOME and leaves nothing.
set -eu

carrel=${CARREL:-build/carrel}
CARREL_HOME=$(mktemp -d)
export CARREL_HOME
id=
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ -z "$id" ] || "$carrel" rm --force "$id" >/dev/null 2>&1 || true
  rm -rf "$CARREL_HOME"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# Runs a command in the agent's shell and shows it as the agent sees it.
agent() {
  printf '  agent $ %s\n' "$1"
  "$carrel" sh "$id" "$1" 2>&1 | sed 's/^/          /'
}

# attempt "what it tries" command...: shows the attempt and keeps its status and output.
attempt() {
  printf '\n  %s\n' "$1"
  shift
  status=0
  output=$("$@" 2>&1) || status=$?
  printf '%s\n' "$output" | cut -c1-100 | tail -n 2 | sed 's/^/          /'
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

say 'A room for an agent'
id=$("$carrel" create --name demo)
printf '  carrel create  ->  %s\n' "$id"

say 'Turn 1: look around, go to /tmp'
agent 'whoami; hostname; pwd'
agent 'cd /tmp && printf "alpha\nbeta\ngamma\n" > notes.txt && wc -l notes.txt'

say 'Turn 2: the same shell, so a relative path lands in /tmp'
# shellcheck disable=SC2016 # it is the agent's shell that expands
agent 'printf "three notes, the first is %s\n" "$(head -n1 notes.txt)" > summary.txt'
agent 'ls -1 /tmp/*.txt; cat /tmp/summary.txt'

say 'What the log says'
"$carrel" logs "$id" | sed 's/^/  /'

say 'Three things that a bad agent might try'
canary=$CARREL_HOME/canary
printf 'secret-of-the-host\n' > "$canary"
attempt "1. Read the host: every file named 'canary', and the host's shadow file" \
  "$carrel" run -- bash -c 'find / -name canary -exec cat {} + 2>/dev/null; cat /etc/shadow'
contained 'neither is there' [ "${output#*secret-of-the-host}" = "$output" ]
attempt '2. Fork bomb (50 processes are allowed)' \
  "$carrel" run --timeout 5 -- bash -c ': fork-bomb; b() { b | b & }; b; wait'
contained 'not one of its processes is left' [ "$(pgrep -fc 'fork-bomb' || true)" = 0 ]
attempt '3. Take 2 GB of memory (512 MB are allowed)' \
  "$carrel" run --timeout 20 -- python3 -c 'x = bytearray(2 * 1024**3); print("got it")'
contained 'ended by the limit' [ "$status" = 137 ]

# The host's own address is not public, so it takes a rule of its own.
address=$(hostname -I 2>/dev/null | tr ' ' '\n' | grep -m 1 -F . || true)
if [ -n "$address" ]; then
  say 'A network of one server: what no rule names is refused, with a reason'
  mkdir "$CARREL_HOME/site"
  printf 'hello from the server\n' > "$CARREL_HOME/site/index.html"
  python3 -u -m http.server --bind "$address" --directory "$CARREL_HOME/site" 0 \
    > "$CARREL_HOME/server" 2>&1 &
  server=$!
  port=
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$CARREL_HOME/server")
    [ -z "$port" ] || break
    sleep 0.25
  done
  get='import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())'
  attempt '1. The server that is named' \
    "$carrel" run --network "allow=http:$address:$port" -- python3 -c "$get" "http://$address:$port/"
  contained 'allowed, and nothing else' [ "${output#*hello from the server}" != "$output" ]
  attempt '2. The metadata service of a cloud' "$carrel" run --network "allow=http:$address:$port" \
    -- python3 -c "$get" http://169.254.169.254/
  contained 'denied' [ "${output#*no rule lists it}" != "$output" ]
fi

say 'The host is fine, and nothing is left'
"$carrel" rm "$id" >/dev/null
id=
"$carrel" ls | sed 's/^/  /'
