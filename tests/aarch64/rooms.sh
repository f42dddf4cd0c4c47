#!/bin/bash
# Inside the emulated machine, as root and as an ordinary user: what carrel does for whoever types
# commands. Each check is a line that begins with "ok" or "FAILED"; the last line is "done".
# shellcheck disable=SC2016 # what is in single quotes is for the shell inside
set -u
payload=/payload
PATH=$payload/bin:$PATH
outside=192.0.2.1
name=room

# check NAME STATUS TEXT COMMAND...: COMMAND ends with STATUS in time, and what it prints is like the pattern
# TEXT. Every command here has far more time than it takes on an emulated machine.
check() {
  local name=$1 status=$2 text=$3 begun=$EPOCHREALTIME got printed
  shift 3
  printed=$(timeout -k 10 1500 "$@" 2>&1 </dev/null)
  got=$?
  local took=$(((${EPOCHREALTIME/./} - ${begun/./}) / 1000))
  # shellcheck disable=SC2053 # TEXT is a pattern
  if [ "$got" = "$status" ] && [[ $printed == $text ]]; then
    echo "ok $name ($took ms emulated)"
  else
    echo "FAILED $name ($took ms emulated): status $got instead of $status, printed:"
    printf '%s\n' "$printed" | sed 's/^/  | /'
  fi
}

# Something that the host has and nobody inside may have.
echo "a secret of $HOME" >"$HOME/outside"

check 'doctor: a room works here' 0 '*Sandboxes work here*' carrel doctor
check 'run: the programs are of this processor' 0 aarch64 carrel run -- uname -m
check 'run: the status is that of the command' 7 '' carrel run -- sh -c 'exit 7'
check 'run: what it prints is kept apart' 0 '*"stdout":"out\\n","stderr":"err\\n"*' \
  carrel run --json -- sh -c 'echo out; echo err >&2'
check 'run: a user without rights' 0 $'agent\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2' \
  carrel run -- sh -c 'whoami; grep -E "^(CapEff|NoNewPrivs|Seccomp):" /proc/self/status'
check 'run: the first process is its own' 0 '[1-9]' carrel run -- sh -c 'echo $$'
check 'outside: the file is there' 0 'a secret of*' cat "$HOME/outside"
check 'run: a file of a home outside is not seen' 1 '*No such file*' \
  carrel run -- cat "$HOME/outside"
check 'run: a file of the host is not seen' 1 '*No such file*' carrel run -- cat /srv/outside
check 'run: /usr cannot be written to' 1 '*Read-only file system*' carrel run -- touch /usr/x
check 'run: it makes no namespace' 1 '*not permitted*' carrel run -- unshare --user true
check 'run: it mounts nothing' 32 '*must be superuser*' carrel run -- mount -t tmpfs tmpfs /tmp
for address in 127.0.0.1 $outside; do
  check "outside: $address answers" 0 reached bash -c "read -r word </dev/tcp/$address/8080 && echo \$word"
done
check 'run: a listener at the loopback of the host is out of reach' 1 '*Connection refused*' \
  carrel run -- bash -c 'read -r word </dev/tcp/127.0.0.1/8080 && echo $word'
check 'run: an address of the host is out of reach' 1 '*Network is unreachable*' \
  carrel run -- bash -c "read -r word </dev/tcp/$outside/8080 && echo \$word"
check 'run: a timeout ends it' 124 'begun*' carrel run --timeout 20 -- sh -c 'echo begun; sleep 1000'
check 'run: memory has a limit' 137 '*' \
  carrel run --memory 100m -- python3 -c 'print(len(b"x" * (400 << 20)))'
check 'run: a writable root' 0 written carrel run --writable-root -- sh -c 'echo written >/usr/x && cat /usr/x'
check 'code: Python' 0 42 bash -c 'echo "print(6 * 7)" | carrel code -'

check 'create' 0 '????????-????-????-????-????????????' carrel create --name $name
check 'ls: it is there' 0 "*$name*" carrel ls
check 'sh: the first command' 0 '' carrel sh $name 'cd /tmp && export WHO=world && f() { echo "f $1"; }'
check 'sh: directory, variables and functions stay' 0 $'/tmp world\nf 1' \
  carrel sh $name 'echo "$(pwd) $WHO"; f 1'
check 'sh: the status is that of the command' 5 '' carrel sh $name '(exit 5)'
check 'exec: a process beside the shell' 0 'Python 3.*' carrel exec $name -- python3 --version
check 'exec: a file that stays' 0 '' carrel exec $name -- sh -c 'echo kept >/workspace/file'
check 'sh: it is there' 0 kept carrel sh $name 'cat /workspace/file'
check 'exec: a file of the host is not seen' 1 '*No such file*' carrel exec $name -- cat "$HOME/outside"
check 'exec: the network is out of reach' 1 '*Network is unreachable*' \
  carrel exec $name -- bash -c "read -r word </dev/tcp/$outside/8080 && echo \$word"
check 'cp: a file in' 0 '*' carrel cp "$HOME/outside" $name:/workspace/inside
check 'cp: a file out' 0 '*' carrel cp $name:/workspace/inside "$HOME/back"
check 'cp: it is the same' 0 '' cmp "$HOME/outside" "$HOME/back"
check 'file: read' 0 kept carrel file read $name file
check 'logs' 0 '*sandbox*started*cd /tmp*' carrel logs $name
check 'info: what is in force' 0 '*seccomp*' carrel info --enforcement $name
check 'rm' 0 '????????-????-????-????-????????????' carrel rm $name
check 'exec: what was removed is gone' 125 '*' carrel exec $name -- true
check 'ls: nothing is there' 0 "*" carrel ls
case $(carrel ls --json) in
  *$name*) echo 'FAILED ls: what was removed is still listed' ;;
  *) echo 'ok ls: nothing is listed' ;;
esac

check 'workspace: a file for later' 0 '' carrel run --workspace kept -- sh -c 'echo later >file'
check 'workspace: it is there later' 0 later carrel run --workspace kept -- cat file
check 'network: what is allowed is reached' 0 reached \
  carrel run --network allow=tcp:$outside:8080 -- bash -c "read -r word </dev/tcp/$outside/8080 && echo \$word"
check 'network: what is not allowed is refused' 1 '*reset by peer*' \
  carrel run --network allow=tcp:$outside:8081 -- bash -c "read -r word </dev/tcp/$outside/8080 && echo \$word"
mkdir -p "$HOME/small/bin"
cp /usr/bin/busybox "$HOME/small/bin/"
tar -czf "$HOME/small.tar.gz" -C "$HOME/small" .
check 'image: import' 0 small:1 carrel image import "$HOME/small.tar.gz" --name small:1
check 'image: run' 0 'it runs' carrel run --image small:1 -- /bin/busybox echo 'it runs'
check 'disk: a workspace has a size' 1 '*No space left*' \
  carrel run --disk 16m -- sh -c 'head -c 30m /dev/zero >/workspace/big'
check 'processes: they have a limit' 254 '*Resource temporarily unavailable*' \
  carrel run --pids 20 -- bash -c 'for i in {1..60}; do sleep 100 & done'
carrel serve >"$CARREL_HOME/serve.log" 2>&1 &
server=$!
check 'serve: a command over HTTP' 0 '*"stdout":"42\\n"*' python3 $payload/api_client.py "$CARREL_HOME/run/api.sock"
kill "$server"
wait "$server"
check 'verify: everything held' 0 'fs *Everything held (native): [5-9][0-9] held*' carrel verify
# The keeper and what it keeps ready go by themselves, some seconds later.
left=60
while pgrep -u "$(id -u)" carrel >/dev/null && [ "$left" -gt 0 ]; do
  sleep 1
  left=$((left - 1))
done
check 'no process is left' 1 '' pgrep -u "$(id -u)" -l carrel
echo "done"
