#!/bin/busybox sh
# shellcheck shell=dash
# The first program of the emulated machine, in its initramfs: makes its disks known and goes over to
# the system on one of them. It is a shell of busybox; there is nothing else yet.
set -eu
trap 'busybox echo "the first program ended early"; busybox poweroff -f' EXIT
for place in proc sys dev root; do
  busybox mkdir -p "/$place"
done
busybox mount -t devtmpfs devtmpfs /dev
busybox mount -t proc proc /proc
while read -r module; do
  busybox insmod "/modules/$module"
done </modules/order
left=100
until [ -b /dev/vda ] && [ -b /dev/vdb ]; do
  left=$((left - 1))
  [ "$left" -gt 0 ]
  busybox sleep 0.1
done
# Which disk is the first depends on the machine; their file systems have names.
busybox mount -t ext4 "$(busybox findfs LABEL=carrel-root)" /root
busybox mount -t ext4 -o ro "$(busybox findfs LABEL=carrel-payload)" /root/payload
busybox mount --move /dev /root/dev
busybox mount --move /proc /root/proc
exec busybox switch_root /root /usr/bin/busybox init
