"""From a budget and a sensitivity to a mechanism."""
