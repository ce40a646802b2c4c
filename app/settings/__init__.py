"""What the operator sets: settings from flags, variables and files, and the files that drain a
node.
"""
