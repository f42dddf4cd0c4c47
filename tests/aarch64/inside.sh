#!/bin/sh
# In namespaces of its own, as root: enters the root with the cross compiler, ROOT, with the clone,
# REPOSITORY, as its /src, and with TEMPORARY as its /tmp, and runs a command there. It sees a network with a loopback interface and
# nothing else, and no device of the machine. Called by run.sh: inside.sh COMMAND...
set -eu

ip link set lo up
# shellcheck disable=SC3045 # dash has it
ulimit -c 0
mount --bind "$ROOT" "$ROOT"
cd "$ROOT"
mkdir -p src
mount --bind "$REPOSITORY" src
mount -t proc -o nosuid,nodev,noexec proc proc
# On the disk, where files that were mapped behave as most do.
mount --bind "$TEMPORARY" tmp
chmod 1777 tmp
mount -t tmpfs -o mode=755,nosuid tmpfs dev
mkdir -p dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs dev/shm
for node in null zero full random urandom tty; do
  cp -a "/dev/$node" "dev/$node"
done
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir -p mnt
pivot_root . mnt
# shellcheck disable=SC2016 # the inner shell's
exec chroot . sh -c 'cd / && umount -l /mnt && cd /src && exec "$@"' sh "$@"
