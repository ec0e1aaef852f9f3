"""What server and party agree on: plans, guarantees, messages, the roster."""
