#!/bin/sh
# Makes a copy of a system of system.sh that others manage and watch: with Python and an ssh server for Ansible,
# keepalived, and Zabbix's agent. Needs root.
#   usage: tests/package/managed.sh SYSTEM DIRECTORY
set -eu

base=$1 system=$2
PATH=$PATH:/usr/sbin:/sbin

cleanup() {
    for mounted in dev proc; do umount -l "$system/$mounted" 2>/dev/null || true; done
}
trap cleanup EXIT

rm -rf "$system"
cp -a --reflink=auto "$base" "$system"
mount --bind /dev "$system/dev"
mount -t proc proc "$system/proc"
export DEBIAN_FRONTEND=noninteractive
chroot "$system" apt-get update -qq >/dev/null
# No package starts its service while it is installed here.
printf '#!/bin/sh\nexit 101\n' >"$system/usr/sbin/policy-rc.d"
chmod +x "$system/usr/sbin/policy-rc.d"
chroot "$system" apt-get install -y -qq --no-install-recommends \
    python3 python3-apt openssh-server keepalived zabbix-agent >/dev/null
chroot "$system" apt-get clean
rm -rf "$system"/var/lib/apt/lists/* "$system/usr/sbin/policy-rc.d"
