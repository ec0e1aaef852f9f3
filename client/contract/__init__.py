"""The contract between server and party: plans, guarantees, messages, the roster."""
