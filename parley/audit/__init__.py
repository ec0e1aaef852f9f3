"""The audit at the front door: its files and its page."""
