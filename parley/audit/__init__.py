"""The audit at the front door: its commands, its files, its page."""
