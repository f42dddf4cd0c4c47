#!/bin/sh
# Works in a fresh Debian as a newcomer would: ./dev test-fresh --help
#
# The root file system is made by mmdebstrap from this machine's own package sources. It is entered
# with namespaces, control groups and a network of its own, and everything is removed at the end.
# REPOSITORY is the clone, WORK the directory for roots, packages and logs. As root.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck disable=SC1091 # a neighbour
. "$here/../support/apt_sources.sh"
repository=${REPOSITORY:?}
work=${WORK:?}

say() {
  printf 'test-fresh: %s\n' "$*"
}

fail() {
  say "$*" >&2
  exit 1
}

release=12
case ${1:-} in
  12 | 13)
    release=$1
    shift
    ;;
esac
case $release in
  12) suite=bookworm usual='demo test' ;;
  13) suite=trixie usual='demo unit end-to-end' ;;
esac
# shellcheck disable=SC2086 # the usual parts are words
[ $# -gt 0 ] || set -- $usual
parts=
script=
while [ $# -gt 0 ]; do
  case $1 in
    demo | test | unit | end-to-end) ;;
    script)
      script=${2:-}
      [ -f "$script" ] || fail "'script' is followed by a file, and '$script' is none"
      shift
      ;;
    *) fail "there is no part '$1'; see ./dev test-fresh --help" ;;
  esac
  [ -n "$script" ] || parts="$parts$1 "
  shift
done
parts="$parts${script:+script}"
parts=${parts% }
[ "$(id -u)" -eq 0 ] || fail 'a root file system is made and entered as root: sudo ./dev test-fresh'

base=$work/debian-$release.tar
packages=$work/packages-$release
root=$work/root-$release.$$
group=carrel-fresh-$$
log=$work/log-$release
compiled=$work/compiled-$release
mkdir -p "$packages/partial" "$compiled"

# The groups that this run makes: one at the top of each hierarchy.
hierarchies() {
  awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts
}

attached_loops() {
  losetup --list --noheadings --output NAME,BACK-INO,BACK-MAJ:MIN 2>/dev/null || true
}

# Loop devices that were attached to files of the root and that nobody detached.
detach_loops() {
  attached_loops | while read -r device inode of; do
    case "$loops_before" in *"$device $inode $of"*) continue ;; esac
    [ -z "$(find "$root" -xdev -inum "$inode" -print -quit 2>/dev/null)" ] || losetup -d "$device"
  done
}

# The deepest first; a group that a dying process is still in is tried again.
remove_groups() {
  for top in $(hierarchies); do
    [ -d "$top/$group" ] || continue
    tries=50
    while [ -d "$top/$group" ] && [ "$tries" -gt 0 ]; do
      find "$top/$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
      tries=$((tries - 1))
    done
    [ ! -d "$top/$group" ] || say "could not remove $top/$group" >&2
  done
}

inside=
network=
slirp=
loops_before=$(attached_loops)
# shellcheck disable=SC2317 # called by the traps
leave() {
  status=$?
  trap - EXIT
  trap '' INT TERM HUP
  # The first process of the fresh system dies with the program that made its namespace, and all
  # others die with the first.
  for process in $inside $slirp $network; do
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  remove_groups
  detach_loops
  rm -rf --one-file-system "$root" "$work/sources.$$" "$work/acquire.$$.conf"
  exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# How this machine's apt fetches: proxies, certificates, what it accepts.
apt-config dump Acquire >"$work/acquire.$$.conf"

# Made again when the packages of it may have changed, or the way it is made.
wanted="1 $(date +%Y-%W)"
if [ ! -f "$base" ] || [ "$(cat "$base.made-by" 2>/dev/null)" != "$wanted" ]; then
  say "making a minimal Debian $release"
  rm -f "$base"
  # What a newcomer needs to clone and to install; ./dev installs the rest. -- Not more: a package
  # that is missing from the lists of ./dev is to be noticed.
  # shellcheck disable=SC2046 # names of files without spaces
  mmdebstrap --mode=root --format=tar --variant=minbase --include=git,sudo,ca-certificates \
    --aptopt="$work/acquire.$$.conf" "$suite" "$base.new" $(apt_sources "$suite" "$work/sources.$$") >"$log.base" 2>&1 || {
    tail -n 5 "$log.base" >&2
    fail "could not make it; see $log.base"
  }
  mv "$base.new" "$base"
  echo "$wanted" >"$base.made-by"
fi

mkdir -p "$root"
tar -xf "$base" -C "$root"
mkdir -p "$root/srv/carrel" "$root/usr/local/share/ca-certificates"
# A bundle, so that neither the owner of this clone nor its kind (a worktree) matters.
git -c safe.directory='*' -C "$repository" bundle create --quiet "$root/srv/carrel/bundle" HEAD
if [ -n "$(git -c safe.directory='*' -C "$repository" status --porcelain)" ]; then
  say 'what is not committed is not part of this'
fi
cp "$here/inside.sh" "$here/newcomer.sh" "$root/srv/carrel/"
sed -n "s/^$release //p" "$here/differences.txt" >"$root/srv/carrel/differences"
printf '%s\n' "$parts" | tr ' ' '\n' >"$root/srv/carrel/parts"
[ -z "$script" ] || cp "$script" "$root/srv/carrel/script"
echo "JOBS=${JOBS:-$(nproc)}" >"$root/srv/carrel/environment"
env | grep -iE '^(https?|no|ftp)_proxy=' >>"$root/srv/carrel/environment" || true
# Where a company's own registry needs its own certificates.
find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates/" \; 2>/dev/null || true
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
chmod -R a+rX "$root/srv/carrel"

# A network of its own with a way out, of which the host keeps neither an interface nor a rule.
unshare --net sleep infinity &
network=$!
while [ "$(readlink "/proc/$network/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do
  sleep 0.05
done
slirp4netns --configure --mtu=65520 --disable-host-loopback "$network" tap0 >"$log.network" 2>&1 &
slirp=$!
tries=100
until nsenter --net="/proc/$network/ns/net" ip route show default 2>/dev/null | grep -q tap0; do
  tries=$((tries - 1))
  [ "$tries" -gt 0 ] || fail "the network did not come up; see $log.network"
  sleep 0.1
done
nsenter --net="/proc/$network/ns/net" ip link set lo up
echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"

# The groups become the top of what is seen inside. -- In a shell of its own, which becomes the
# process that makes the namespaces: this script stays in the groups of its caller.
for top in $(hierarchies); do
  mkdir "$top/$group"
  for file in cpuset.cpus cpuset.mems; do
    # Version 1 has no processes in a group without processors and memory.
    [ ! -f "$top/cgroup.clone_children" ] || [ ! -f "$top/$file" ] || cat "$top/$file" >"$top/$group/$file"
  done
done
started=$(date +%s)
: >"$log"
say "Debian $release: $parts (the log is $log)"
(
  # shellcheck disable=SC3028,SC3044 # the pid of this subshell, without bash
  self=$(sh -c 'echo "$PPID"')
  for top in $(hierarchies); do
    echo "$self" >"$top/$group/cgroup.procs"
  done
  exec nice -n "${CARREL_FRESH_NICE:-0}" nsenter --net="/proc/$network/ns/net" \
    unshare --mount --uts --ipc --cgroup --pid --fork --kill-child --propagation private \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin ROOT="$root" \
    PACKAGES="$packages" COMPILED="${CARREL_FRESH_CCACHE:+$compiled}" TERM="${TERM:-dumb}" \
    sh "$root/srv/carrel/inside.sh" </dev/null >"$log" 2>&1
) &
inside=$!
tail -n +1 -F --pid="$inside" "$log" 2>/dev/null &
shown=$!
wait "$inside" || true
inside=
wait "$shown" || true
say "Debian $release: $parts took $(($(date +%s) - started)) seconds"
sum=$(tail -n 1 "$log")
case $sum in
  *' passed, 0 failed') echo "$sum" ;;
  *' passed, '*' failed')
    echo "$sum"
    exit 1
    ;;
  *) fail "it ended early; see $log" ;;
esac
