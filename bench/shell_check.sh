#!/bin/bash
# A minimal version of the clustercheck script, as xinetd runs it: it starts one mysql client for each health check.
#   usage: shell_check.sh OPTION-FILE
row=$(mariadb --defaults-file="$1" -NBe "SHOW STATUS LIKE 'wsrep_local_state'" 2>/dev/null)
if [ "${row#*$'\t'}" = 4 ]; then
    printf 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nPercona XtraDB Cluster Node is synced.\r\n'
else
    printf 'HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\nPercona XtraDB Cluster Node is not synced.\r\n'
fi
