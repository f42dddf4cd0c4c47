#!/bin/sh
# make_image.sh DIRECTORY: a Debian 12 with systemd, as root.img, vmlinuz and initrd in DIRECTORY.
#
# As root, in a mount namespace of its own. What is there already and was made by this very script
# is kept.
set -eu

directory=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
stamp=$directory/image-made-by
wanted=$(cksum <"$here/make_image.sh")
if [ -f "$directory/root.img" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
  exit 0
fi
[ "$(id -u)" -eq 0 ] || {
  echo 'test-v2: the image is made as root: sudo ./dev test-v2' >&2
  exit 1
}
if [ "${2:-}" != in-namespace ]; then
  exec unshare --mount --propagation private "$here/make_image.sh" "$directory" in-namespace
fi

mkdir -p "$directory"
root=$directory/root
rm -rf "$root" "$stamp"
log=$directory/image.log
# The tests want bash, python3, git, ps, script, setpriv and useradd; the rest is the system.
if ! mmdebstrap --mode=root --variant=minbase \
  --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd \
  --include=linux-image-cloud-amd64,initramfs-tools,zstd \
  --include=python3,git,procps,util-linux,bsdutils,passwd,libstdc++6 \
  --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  bookworm "$root" ${CARREL_V2_MIRROR:+"$CARREL_V2_MIRROR"} >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  exit 1
fi

# Who stays logged in, who comes and goes, and who has no session at all.
for user in resident visitor; do
  chroot "$root" useradd --create-home --shell /bin/bash "$user"
done
chroot "$root" useradd --user-group --no-create-home --shell /bin/sh carrel-test

for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
  fstrim.timer e2scrub_reap.service getty@.service serial-getty@.service \
  systemd-update-utmp.service systemd-networkd.service; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
echo carrel-v2 >"$root/etc/hostname"
cat >"$root/etc/systemd/system/carrel-tests.service" <<UNIT
[Unit]
After=multi-user.target systemd-logind.service dbus.service

[Service]
Type=oneshot
ExecStartPre=/bin/mkdir -p /payload
ExecStartPre=/bin/mount -t ext4 -o ro /dev/vdb /payload
ExecStart=/bin/sh /payload/guest.sh
ExecStopPost=/bin/systemctl poweroff --force
StandardOutput=file:/dev/ttyS1
StandardError=inherit
TimeoutStartSec=infinity
UNIT
mkdir -p "$root/etc/systemd/system/default.target.wants"
ln -sf ../carrel-tests.service "$root/etc/systemd/system/default.target.wants/"

cp "$root"/boot/vmlinuz-* "$directory/vmlinuz"
cp "$root"/boot/initrd.img-* "$directory/initrd"
rm -rf "${root:?}"/boot/* "${root:?}"/var/cache/apt/*
rm -f "$directory/root.img"
# Sparse: the tests write little.
mke2fs -q -t ext4 -L carrel-v2 -O ^has_journal -d "$root" "$directory/root.img" 2G
rm -rf "$root"
echo "$wanted" >"$stamp"
