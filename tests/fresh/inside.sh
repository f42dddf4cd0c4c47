#!/bin/sh
# The first process of the fresh system, as root, in its namespaces: makes ROOT look like a machine,
# enters it and runs newcomer.sh there as an ordinary user. Called by run.sh.
set -eu

if [ "${1:-}" != entered ]; then
  # Into a group below the top, as on a machine: the top of version 2 has no processes.
  awk '$3 == "cgroup" || $3 == "cgroup2"' /proc/self/mounts >"$ROOT/srv/carrel/hierarchies"
  mount --bind "$ROOT" "$ROOT"
  cd "$ROOT"
  mount -t proc -o nosuid,nodev,noexec proc proc
  mount -t sysfs -o nosuid,nodev,noexec sysfs sys
  mount -t tmpfs -o mode=755,nosuid tmpfs dev
  mkdir -p dev/pts dev/shm dev/mqueue dev/net
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
  mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs dev/shm
  mount -t mqueue mqueue dev/mqueue
  mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs run
  for node in null zero full random urandom tty kmsg kvm fuse net/tun loop-control; do
    [ ! -e "/dev/$node" ] || cp -a "/dev/$node" "dev/$node"
  done
  # As udev leaves them; a person who logs in at a desktop may use KVM.
  for node in null zero full random urandom tty kvm fuse net/tun; do
    [ ! -e "dev/$node" ] || chmod 666 "dev/$node"
  done
  number=0
  while [ "$number" -lt 32 ]; do
    mknod -m 660 "dev/loop$number" b 7 "$number"
    chown :6 "dev/loop$number"
    number=$((number + 1))
  done
  ln -s pts/ptmx dev/ptmx
  ln -s /proc/self/fd dev/fd
  for number in 0 1 2; do
    ln -s "/proc/self/fd/$number" "dev/$(echo 'stdin stdout stderr' | cut -d ' ' -f $((number + 1)))"
  done
  mkdir -p run/lock
  chmod 1777 run/lock
  mount --bind "$PACKAGES" var/cache/apt/archives
  if [ -n "$COMPILED" ]; then
    mkdir -p var/cache/ccache
    mount --bind "$COMPILED" var/cache/ccache
    chmod -R a+rwX var/cache/ccache
    printf 'CCACHE_DIR=/var/cache/ccache\nCCACHE_UMASK=000\n' >>srv/carrel/environment
  fi
  while read -r _ place type options _; do
    case $place in
      /sys/fs/cgroup) [ "$type" = cgroup2 ] || continue ;;
      /sys/fs/cgroup/*)
        mountpoint -q sys/fs/cgroup || mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
        ;;
      *) continue ;;
    esac
    mkdir -p ".$place"
    kind=$(printf '%s' "$options" | tr ',' '\n' |
      grep -vxE 'rw|ro|nosuid|nodev|noexec|(rel|no)atime|xattr|nsdelegate|memory_recursiveprot' | paste -sd , -)
    [ "$type" = cgroup ] || kind=
    mount -t "$type" ${kind:+-o "$kind"} "$type" ".$place"
    mkdir -p ".$place/session"
    for file in cpuset.cpus cpuset.mems; do
      [ "$type" = cgroup2 ] || [ ! -f ".$place/$file" ] || cat ".$place/$file" >".$place/session/$file"
    done
    echo $$ >".$place/session/cgroup.procs"
    if [ "$type" = cgroup2 ]; then
      for controller in $(tr ' ' '\n' <".$place/cgroup.controllers"); do
        echo "+$controller" >".$place/cgroup.subtree_control" 2>/dev/null || true
      done
    fi
  done <srv/carrel/hierarchies
  mkdir -p mnt
  pivot_root . mnt
  exec chroot . sh /srv/carrel/inside.sh entered
fi

cd /
umount -l /mnt
hostname fresh
echo fresh >/etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 fresh\n::1 localhost\n' >/etc/hosts
update-ca-certificates >/dev/null 2>&1 || true
useradd --create-home --shell /bin/bash newcomer
echo 'newcomer ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/newcomer
sed 's/^/export /' /srv/carrel/environment >/etc/profile.d/fresh.sh
if [ -d /var/cache/ccache ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update >/dev/null && apt-get -q -y install --no-install-recommends ccache >/dev/null
fi
exec su -l newcomer -c 'sh /srv/carrel/newcomer.sh'
