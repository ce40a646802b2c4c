-- Run this on one node, with the password of the Secret. Galera replicates it. The account needs no privilege.
-- A new cluster runs it by itself where it is mounted in /docker-entrypoint-initdb.d.
CREATE USER clustercheck@127.0.0.1 IDENTIFIED BY 'change-me' WITH MAX_USER_CONNECTIONS 6 PASSWORD EXPIRE NEVER;
