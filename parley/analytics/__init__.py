"""Private statistics across parties: sessions and their answers."""
