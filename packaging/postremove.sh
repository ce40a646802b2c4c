#!/bin/sh
set -e
# dpkg calls this with `remove` and then perhaps `purge`, or with another word for an upgrade; RPM with 0, or 1.
case "$1" in
    remove | 0)
        [ ! -d /run/systemd/system ] || systemctl --system daemon-reload || :
        ;;
    purge)
        for path in /etc/clustercheckd /etc/systemd/system/clustercheckd.service.d /var/tmp/clustercheck.disabled; do
            # dpkg removes its directory after this, if it is empty.
            [ -z "$(ls -A "$path" 2>/dev/null)" ] || echo "clustercheckd leaves $path"
        done
        # What it may own must not fall to the next user with its number.
        echo "clustercheckd leaves the user clustercheck. To remove it, run: userdel clustercheck"
        ;;
esac
