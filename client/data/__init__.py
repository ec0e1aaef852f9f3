"""A party's records: schema, files, cells, rows ready to learn from."""
