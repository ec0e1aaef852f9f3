"""Plan a job before any data are read: `parley.plan` and `parley plan`."""
