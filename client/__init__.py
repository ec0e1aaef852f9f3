"""The client: a party's data, policy and local computation."""
