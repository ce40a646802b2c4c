#!/bin/bash
# A minimal version of the clustercheck script, for xinetd: it starts one mysql client for each health check.
#   usage: shell_check.sh OPTION-FILE
# Unlike the script, it reads the request, so that the connection does not end with a reset.
while read -r line && [ -n "${line%$'\r'}" ]; do :; done

row=$(mariadb --defaults-file="$1" -NBe "SHOW STATUS LIKE 'wsrep_local_state'" 2>/dev/null)
if [ "${row#*$'\t'}" = 4 ]; then
    status='200 OK' body=$'Percona XtraDB Cluster Node is synced.\r\n'
else
    status='503 Service Unavailable' body=$'Percona XtraDB Cluster Node is not synced.\r\n'
fi
printf 'HTTP/1.1 %s\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
    "$status" "${#body}" "$body"
