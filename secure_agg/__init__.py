"""Integers in, one sum out: encoding, primitives, protocol. No IO, no torch, no Flower."""
