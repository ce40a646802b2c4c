"""What the operator sets, and what is made of it.

The fields of `settings.Settings` are the rows of the table, with their limits. `source` reads
flags, variables and the env file into them. `database` makes the server and account of a
connection, with `option_file` and `tls`. `disabled_file` says whether the node is drained.
"""
