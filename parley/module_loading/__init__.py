"""Loading of modules: plug-ins by name, large libraries, and the memory that loading needed.

It imports no other package of Parley.
"""
