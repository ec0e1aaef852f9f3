"""Secure aggregation: each party's integers in, one sum out. Encoding, primitives and protocol.

It does no input or output, and imports neither torch nor Flower.
"""
