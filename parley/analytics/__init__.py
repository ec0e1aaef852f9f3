"""Private statistics across parties: sessions, their answers, and the command."""
