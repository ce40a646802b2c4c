"""What the operator sets, and what is made of it.

`settings.Source` reads flags, variables and the env file. `database` turns them into the
server and account of a connection, with `option_file` and `tls`. `disabled_file` says whether the
node is drained. Every mistake is a `error.SettingsError`, one line each.
"""
