"""What the operator sets, and what is made of it.

`source` reads flags, variables and the env file into the `settings`, by the rows of `app.table`.
`database` turns them into the server and account of a connection, with `option_file` and `tls`.
`disabled_file` says whether the node is drained.
"""
