"""Public feature maps: fixed functions of a single record, agreed on by name and digest."""
