#!/bin/sh
# Measures Carrel beside bubblewrap, runc, docker and a bare bash: see bench/README.md.
#
# Prepares what carrel_bench needs (a directory, an ordinary user, a small root for the containers,
# a docker daemon of its own in namespaces of its own), runs it, and removes all of it again. Reads
# the path of the program from $CARREL.
set -eu

usage() {
  cat <<END
usage: ./dev bench [--quick] [--json] [--only PART] [--without-docker]

  --quick           few samples: a look whether everything works, in about a minute
  --json            one JSON object instead of the table
  --only PART       one-shot, commands, containers, daemon, rate, memory, files,
                    instructions, egress, flows or workspaces
  --without-docker  start no docker daemon

As root. The table says for each way of doing a thing the median, between which values the middle
eight tenths of the samples lie, their number, and the ratio to the peer with what the budget of
the design asks for.
END
}

fail() {
  printf 'bench: %s\n' "$*" >&2
  exit 1
}

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
user=carrel-bench
docker=yes
options=
while [ $# -gt 0 ]; do
  case $1 in
    --quick | --json) options="$options $1" ;;
    --only)
      [ $# -ge 2 ] || fail '--only needs the name of a part'
      options="$options --only $2"
      shift
      ;;
    --without-docker) docker=no ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
  shift
done

[ -n "${CARREL:-}" ] || fail 'CARREL is not set; ./dev bench sets it'
[ "$(id -u)" -eq 0 ] || fail 'needs root: the peers do, and the control groups that count memory'
build=$(dirname "$CARREL")
driver=${CARREL_BENCH:-$build/carrel_bench}
if [ -f "$build/build.ninja" ] && [ -z "${CARREL_BENCH:-}" ]; then
  ninja -C "$build" --quiet carrel_bench
fi
[ -x "$driver" ] || fail "there is no $driver; build the target carrel_bench"

# --- what is made, and how it goes away ---------------------------------------------------------

place=$(mktemp -d "${TMPDIR:-/tmp}/carrel-bench.XXXXXX")
groups=carrel-bench-${place##*.}
daemon=
measuring=
made_user=no

# hierarchies: where control groups are mounted.
hierarchies() {
  awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts
}

# remove_groups NAME: the groups of that name at the top of every hierarchy, and those below it.
remove_groups() {
  for top in $(hierarchies); do
    [ ! -d "$top/$1" ] || find "$top/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
}

# end PID: asks it to leave, and insists after ten seconds.
end() {
  kill "$1" 2>/dev/null || return 0
  tries=0
  while [ "$tries" -lt 100 ] && [ -e "/proc/$1/exe" ]; do
    tries=$((tries + 1))
    sleep 0.1
  done
  [ ! -e "/proc/$1/exe" ] || kill -9 "$1" 2>/dev/null || true
}

# The processes that were started with a state directory of this run: the keepers.
keepers() {
  grep -lszxF -e "CARREL_HOME=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 || true
}

clean_up() {
  status=$?
  trap '' INT TERM HUP
  trap - EXIT
  [ -z "$measuring" ] || end "$measuring"
  for home in "$place"/root/* "$place"/user/*; do
    [ -f "$home/installation" ] || continue
    as=
    case $home in
      "$place"/user/*) as=$as_user ;;
    esac
    for box in "$home"/run/box/*; do
      [ -d "$box" ] || continue
      # shellcheck disable=SC2086 # $as is words
      $as env CARREL_HOME="$home" "$place/carrel" rm "$(basename "$box")" >/dev/null 2>&1 || true
    done
    for keeper in $(keepers "$home"); do
      end "$keeper"
    done
    for top in $(hierarchies); do
      for group in "$top/carrel-$(cat "$home/installation")-"*; do
        [ ! -d "$group" ] || remove_groups "$(basename "$group")"
      done
    done
  done
  # More homes are disks that only the benchmark's own mount namespace has.
  for who in root user; do
    as=
    [ "$who" = root ] || as=$as_user
    for keeper in $(keepers "$place/$who/btrfs"); do
      # shellcheck disable=SC2086 # $as is words
      nsenter --mount --target "$keeper" $as env CARREL_HOME="$place/$who/btrfs" \
        "$place/carrel" rm --all --force >/dev/null 2>&1 || true
      end "$keeper"
    done
  done
  if [ -n "$daemon" ]; then
    containers=$(docker_here ps -aq 2>/dev/null) || containers=
    # shellcheck disable=SC2086 # ids are words
    [ -z "$containers" ] || docker_here rm -f $containers >/dev/null 2>&1 || true
    end "$daemon"
  fi
  remove_groups "$groups"
  [ "$made_user" = no ] || userdel "$user" 2>/dev/null || true
  rm -rf "$place"
  exit "$status"
}

docker_here() {
  DOCKER_CONFIG=$place docker --host "unix://$place/docker/socket" "$@"
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- the program, and whom it runs for ----------------------------------------------------------

chmod 0755 "$place"
install -m 0755 "$CARREL" "$place/carrel"
if ! id "$user" >/dev/null 2>&1; then
  useradd --system --no-create-home --shell /usr/sbin/nologin "$user"
  made_user=yes
fi
as_user="setpriv --reuid=$(id -u "$user") --regid=$(id -g "$user") --clear-groups"
mkdir -m 0755 "$place/root" "$place/user"
chown "$user:" "$place/user"

# --- a small root for runc and docker: bash, true, sleep and their libraries --------------------

small=$place/small
for program in /bin/bash /bin/true /bin/sleep; do
  for file in "$program" $(ldd "$program" | grep -o '/[^ ]*'); do
    mkdir -p "$small$(dirname "$file")"
    cp -L "$file" "$small$file"
  done
done
mkdir -p "$small/proc" "$small/sys" "$small/dev" "$small/tmp" "$small/etc"

# bundle NUMBER: as bare as bubblewrap's sandbox, with a control group of its own.
bundle() {
  mkdir -p "$place/bundles/$1"
  cat >"$place/bundles/$1/config.json" <<END
{
  "ociVersion": "1.0.2",
  "process": {
    "terminal": false, "user": {"uid": 0, "gid": 0}, "args": ["/bin/true"],
    "env": ["PATH=/bin"], "cwd": "/", "noNewPrivileges": true
  },
  "root": {"path": "$small", "readonly": true},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
     "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
    {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}
  ],
  "linux": {
    "cgroupsPath": "/$groups/runc-$1",
    "namespaces": [
      {"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}
    ]
  }
}
END
}

for number in 0 1 2 3 4 5 6 7; do
  bundle "$number"
done

# --- a docker daemon of its own -----------------------------------------------------------------

# Its mounts and its network stay in namespaces of its own; so do its sockets in /run. What it uses
# in memory is counted in a group of its own.
start_docker() {
  mkdir -p "$place/docker"
  printf '{"deprecated-key-path": "%s"}\n' "$place/docker/key.json" >"$place/docker/daemon.json"
  # shellcheck disable=SC2016 # for the inner shell
  unshare --mount --net --propagation private sh -c '
    mount -t tmpfs tmpfs /run
    [ -z "$2" ] || echo $$ >"$2"
    exec dockerd --config-file "$1/daemon.json" --data-root "$1/data" --exec-root "$1/exec" \
      --host "unix://$1/socket" --pidfile "$1/pid" --cgroup-parent "/$3/containers" \
      --group "$4" --bridge none --iptables=false --ip-forward=false --ip-masq=false --log-level error' \
    sh "$place/docker" "$(memory_group docker)" "$groups" "$(id -g "$user")" >"$place/docker/log" 2>&1 &
  daemon=$!
  tries=0
  until docker_here info >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -ge 150 ] || ! kill -0 "$daemon" 2>/dev/null; then
      why_not="its daemon does not start: $(tail -n 1 "$place/docker/log")"
      return 1
    fi
    sleep 0.2
  done
  tar -c -C "$small" . | docker_here import - carrel-bench >/dev/null || {
    why_not='its daemon does not import the image'
    return 1
  }
}

# memory_group NAME: makes a group of this run that counts memory; prints the file to join it by.
memory_group() {
  for top in $(hierarchies); do
    if [ -f "$top/memory.stat" ] && [ -f "$top/tasks" ]; then
      mkdir -p "$top/$groups/$1"
      echo "$top/$groups/$1/tasks"
      return
    fi
  done
  for top in $(hierarchies); do
    if grep -qsw memory "$top/cgroup.controllers"; then
      mkdir -p "$top/$groups"
      echo +memory >"$top/$groups/cgroup.subtree_control" 2>/dev/null || true
      mkdir -p "$top/$groups/$1"
      echo "$top/$groups/$1/cgroup.procs"
      return
    fi
  done
}

why_not=
if [ "$docker" = no ]; then
  why_not='--without-docker was given'
elif ! command -v dockerd >/dev/null 2>&1; then
  why_not='dockerd is not installed (the Debian package docker.io)'
elif ! command -v docker >/dev/null 2>&1; then
  why_not='its command is not installed'
else
  start_docker || true
fi

if [ -n "$why_not" ]; then
  set -- --no-docker "$why_not"
else
  set -- --docker-socket "$place/docker/socket"
fi
# shellcheck disable=SC2086 # $options is words
"$driver" --carrel "$place/carrel" --directory "$place" --groups "$groups" --user "$user" \
  --bundles "$place/bundles" "$@" $options &
measuring=$!
# In the background, so that a signal to this script alone is heard at once.
wait "$measuring"
