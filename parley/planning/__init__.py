"""What a job would cost, before any data are read: `parley.plan` and `parley plan`."""
