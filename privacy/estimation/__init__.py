"""What noisy integers say: intervals, and post-processing that costs no privacy."""
