#!/bin/sh
# Inside the emulated machine, as root: makes it look like one, runs rooms.sh as root and as an
# ordinary user and units.sh, and prints at the end "N passed, N failed". Started by busybox's init, which waits for it
# and switches the machine off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
payload=/payload

dmesg -n 1
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o mode=620,ptmxmode=666,gid=5 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs /run
ln -s /proc/self/fd /dev/fd
hostname emulated
# As systemd does it: the top group has no processes, and what is below may have limits.
mkdir /sys/fs/cgroup/session
while read -r process; do
  echo "$process" >/sys/fs/cgroup/session/cgroup.procs 2>/dev/null || true
done </sys/fs/cgroup/cgroup.procs
for controller in $(tr ' ' '\n' </sys/fs/cgroup/cgroup.controllers); do
  echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
done
# A network that programs outside of a room reach.
ip link set lo up
ip address add 192.0.2.1/24 dev lo
mkdir -p /srv
echo 'nobody inside reads this' >/srv/outside
python3 $payload/listener.py &
listener=$!

echo "Debian $(cat /etc/debian_version), Linux $(uname -r), $(uname -m), emulated by QEMU: its times are too"
passed=0
failed=0
for user in root someone; do
  begun=$(date +%s)
  if [ "$user" = root ]; then
    as=
    home=/root
    mkdir /srv/root
  else
    as='setpriv --reuid 1000 --regid 1000 --clear-groups --'
    home=/home/someone
    mkdir /srv/someone
    chown 1000:1000 /srv/someone
  fi
  log=/run/log-$user
  # shellcheck disable=SC2086 # $as is words
  (cd "$home" && env -i PATH="$PATH" HOME="$home" CARREL_HOME="/srv/$user/carrel" LANG=C.UTF-8 USER="$user" \
    $as bash $payload/rooms.sh 2>&1) | tee "$log"
  good=$(grep -c "^ok " "$log")
  bad=$(grep -c "^FAILED " "$log")
  if ! tail -n 1 "$log" | grep -q "^done$"; then
    echo "FAILED to reach the end as $user"
    bad=$((bad + 1))
  fi
  echo "$user: $good passed, $bad failed in $(($(date +%s) - begun)) emulated seconds"
  passed=$((passed + good))
  failed=$((failed + bad))
done
kill "$listener"

begun=$(date +%s)
sh $payload/units.sh 2>&1 | tee /run/log-units
sum=$(tail -n 1 /run/log-units)
case $sum in
  *' passed, '*' failed, '*' skipped')
    good=${sum%% *}
    bad=${sum#* passed, }
    bad=${bad%% *}
    ;;
  *)
    good=0
    bad=1
    ;;
esac
echo "unit tests that need a kernel of their own: $sum in $(($(date +%s) - begun)) emulated seconds"
passed=$((passed + good))
failed=$((failed + bad))
echo "$passed passed, $failed failed"
