"""The party: its data, its consent, its local computation."""
