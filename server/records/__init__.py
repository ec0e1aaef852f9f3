"""What a run leaves behind: folder, summary, metrics."""
