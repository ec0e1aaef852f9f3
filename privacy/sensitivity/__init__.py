"""What one record may add to a sum, and how far that moves it."""
