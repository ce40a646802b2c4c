#!/bin/sh
systemctl --system daemon-reload >/dev/null 2>&1 || :
if [ "$1" -ge 1 ]; then
    # An upgrade. Health checks that come meanwhile wait at the socket, which stays.
    systemctl try-restart clustercheckd.service >/dev/null 2>&1 || :
fi
