"""Conditions on records: expressions, and the parser of their text."""
