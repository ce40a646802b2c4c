#!/bin/sh
# Makes a small Debian system in a directory: systemd, a Galera node, HAProxy, xinetd, curl, and no Python; or, of sid,
# which alone has one, a MySQL server and nothing else. Needs root and debootstrap.
#   usage: tests/package/system.sh RELEASE DIRECTORY
# It is made from the mirror that this machine itself uses, and left alone once it is complete.
set -eu

release=$1 system=$2
PATH=$PATH:/usr/sbin:/sbin

mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null \
    | sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb .*\(http[^ ]*\).*/\1/p' | grep '/debian/*$' | head -n 1)
[ -n "$mirror" ] || { echo "system.sh: no Debian mirror in this machine's apt sources" >&2; exit 1; }

cleanup() {
    for mounted in dev proc; do umount -l "$system/$mounted" 2>/dev/null || true; done
}
trap cleanup EXIT

rm -rf "$system"
mkdir -p "$system"
debootstrap --variant=minbase --include=ca-certificates "$release" "$system" "$mirror"
# What this machine needs to reach its mirror is needed there too.
cp /etc/apt/apt.conf.d/* "$system/etc/apt/apt.conf.d/" 2>/dev/null || true
cp -L --remove-destination /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/"
[ ! -e /etc/resolv.conf ] || cp /etc/resolv.conf "$system/etc/"
# No package starts its service while it is installed here.
printf '#!/bin/sh\nexit 101\n' >"$system/usr/sbin/policy-rc.d"
chmod +x "$system/usr/sbin/policy-rc.d"
# Nothing here has to survive a loss of power.
echo force-unsafe-io >"$system/etc/dpkg/dpkg.cfg.d/unsafe"
mount --bind /dev "$system/dev"
mount -t proc proc "$system/proc"
# rpm is for trying the other package's scripts, the last two for what the package brings them.
packages="systemd dbus mariadb-server galera-4 haproxy xinetd curl rpm bash-completion man-db"
[ "$release" != sid ] || packages=mysql-server-core
export DEBIAN_FRONTEND=noninteractive
chroot "$system" apt-get update -qq >/dev/null
# shellcheck disable=SC2086 # a list of words
chroot "$system" apt-get install -y -qq --no-install-recommends $packages >/dev/null
chroot "$system" apt-get clean
rm -rf "$system"/var/lib/apt/lists/*
rm "$system/usr/sbin/policy-rc.d"
[ "$release" != sid ] || exit 0
# Each boot gets an id of its own.
: >"$system/etc/machine-id"
rm -f "$system/var/lib/dbus/machine-id"
echo galera >"$system/etc/hostname"
# Holds the port that galera_recovery, before each start, wants for itself.
rm -f "$system/etc/systemd/system/sockets.target.wants/mariadb.socket"
# A cluster of one, which bootstraps itself at every boot.
cat >"$system/etc/mysql/mariadb.conf.d/99-galera.cnf" <<'END'
[mariadb]
wsrep_on = ON
wsrep_provider = /usr/lib/galera/libgalera_smm.so
wsrep_provider_options = "gcache.size=16M;gmcast.listen_addr=tcp://127.0.0.1:4567"
wsrep_cluster_address = gcomm://
wsrep_node_address = 127.0.0.1
binlog_format = ROW
innodb_buffer_pool_size = 32M
innodb_flush_log_at_trx_commit = 0
END
