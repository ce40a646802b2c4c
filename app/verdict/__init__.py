"""What decides: what a poll read, the rules, and the words for the result.

It imports only the standard library.
"""
