#!/bin/sh
if [ "$1" -eq 0 ]; then
    systemctl --quiet disable --now clustercheckd.socket clustercheckd.service >/dev/null 2>&1 || :
fi
