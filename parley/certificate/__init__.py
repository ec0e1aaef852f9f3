"""A model's certificate: a signed statement of a run's charges, verified offline."""
