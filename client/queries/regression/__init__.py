"""The query `regression`: generalised linear models by noisy Newton steps."""
