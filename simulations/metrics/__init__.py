"""Figures that only a simulation may know."""
