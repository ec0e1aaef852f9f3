"""Private statistics across parties: sessions, queries and their answers."""
