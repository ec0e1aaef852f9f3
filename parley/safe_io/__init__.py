"""Safe reading and writing: files, TOML, JSON, CSV and printable text.

It imports no other package of Parley.
"""
