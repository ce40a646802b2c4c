#!/bin/bash
# A minimal version of the clustercheck script, as xinetd runs it for each health check: it starts one mysql client, reads
# wsrep_local_state, and answers 200 if that is 4, else 503. Usage: MYSQL_PWD=... classic_check.sh SOCKET USER
client=$(command -v mariadb || command -v mysql)
state=$("$client" --no-defaults --socket="$1" --user="$2" -NBe "SHOW STATUS LIKE 'wsrep_local_state'" 2>/dev/null | cut -f 2)
if [ "$state" = 4 ]; then
    printf 'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nNode is synced.\r\n'
else
    printf 'HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nNode is not synced (%s).\r\n' "${state:-no answer}"
fi
