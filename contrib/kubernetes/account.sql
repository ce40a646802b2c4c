-- Run this on one node, with the password of the Secret. Galera replicates it. The account needs no privilege.
CREATE USER clustercheck@127.0.0.1 IDENTIFIED BY 'change-me' WITH MAX_USER_CONNECTIONS 5;
