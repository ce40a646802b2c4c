#!/bin/sh
set -e

if [ "$1" = configure ]; then
    systemd-sysusers clustercheckd.conf
    if [ -z "$2" ]; then
        # The group did not exist yet when the file was unpacked.
        chown root:clustercheck /etc/clustercheckd/clustercheckd.env
        chmod 0640 /etc/clustercheckd/clustercheckd.env
    fi
fi

if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    if [ -n "$2" ]; then
        # Health checks that come meanwhile wait at the socket, which stays.
        deb-systemd-invoke try-restart clustercheckd.service >/dev/null || true
    fi
fi

if [ "$1" = configure ] && [ -z "$2" ]; then
    cat /usr/lib/clustercheckd/first-steps
fi
