"""Propose a schema from files: column types, texts and labels."""
