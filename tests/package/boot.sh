#!/bin/sh
# Boots a Debian system with its own systemd as process 1. tests/package/machine.py runs it, in new namespaces:
#   unshare --mount --pid --fork --uts --ipc --net --cgroup ... tests/package/boot.sh SYSTEM DIRECTORY
# SYSTEM is only read. DIRECTORY keeps the changes of the running system, also for the next boot.
set -eu

system=$1 directory=$2 root=$2/root

mount -t overlay overlay -o "lowerdir=$system,upperdir=$directory/written,workdir=$directory/work" "$root"
ip link set lo up
hostname galera

mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"

mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"

cd "$root"
mkdir -p .host
pivot_root . .host
# Units with credentials need later mounts to be visible in all mount namespaces.
mount --make-rshared /
umount -l /.host
exec env -i container=other PATH=/usr/sbin:/usr/bin \
    /usr/lib/systemd/systemd --unit=multi-user.target --show-status=no
