"""One party: policy, ledger, storage, and the service that answers requests."""
