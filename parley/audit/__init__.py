"""Output of the command `parley audit`: its files, its page and its terminal text."""
