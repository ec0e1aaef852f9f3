"""Privacy events, their composition, and the ε that they cost in total."""
