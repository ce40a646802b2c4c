#!/bin/sh
set -e
# dpkg calls this with `remove` and then perhaps `purge`, or with another word for an upgrade; RPM with 0, or 1.
case "$1" in
    remove | 0)
        [ ! -d /run/systemd/system ] || systemctl --system daemon-reload || :
        ;;
esac
# RPM has no purge.
case "$1" in
    purge | 0)
        for path in /etc/clustercheckd/* /etc/systemd/system/clustercheckd.service.d/* /var/tmp/clustercheck.disabled; do
            [ ! -e "$path" ] || echo "clustercheckd leaves $path"
        done
        # What it may own must not fall to the next user with its number.
        echo "clustercheckd leaves the user clustercheck. To remove it, run: userdel clustercheck"
        echo "clustercheckd leaves the account in the database. Galera replicates: drop it after the last node's removal."
        ;;
esac
