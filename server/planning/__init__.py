"""From a job and public facts to release plans and budgets."""
