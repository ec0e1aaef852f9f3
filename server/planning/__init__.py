"""Release plans and budgets, from a job and public facts."""
