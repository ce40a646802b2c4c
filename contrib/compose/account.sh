# The image's entrypoint sources this when it creates the database: an account without any privilege.
docker_process_sql <<SQL
CREATE USER clustercheck@127.0.0.1 IDENTIFIED BY '$(docker_sql_escape_string_literal "$(cat /secret/clustercheck)")'
  WITH MAX_USER_CONNECTIONS 6;
SQL
