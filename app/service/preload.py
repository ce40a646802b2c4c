"""Imports what libraries import in the middle of their work.

An upgrade replaces the files of a process that goes on: what it imports after that would be of
another version, or missing. `tests/http/test_replaced.py` finds what is not here.
"""

# A host name is looked up, also one with letters beyond ASCII.
from encodings import idna, punycode  # noqa: F401
