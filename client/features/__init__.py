"""Public feature maps: fixed functions of one record alone, agreed on by name and digest."""
