"""A model's certificate: a signed statement of what a run was charged, checked offline."""
