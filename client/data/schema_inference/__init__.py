"""Schema proposals from files: column types, texts and labels."""
