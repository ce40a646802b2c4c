"""What decides: the state of a node, the rules, and the words for the result.

Pure; imports the standard library, `app.text` and `app.kinds`. Others use `rules.decide`, its
types, `node_state`, `reason.Reason` and `body`.
"""
