"""The MySQL side: settings to a login, one connection, one poll at a time.

Every failure is a value.
"""
