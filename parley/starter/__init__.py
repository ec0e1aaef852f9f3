"""Starter folders: a job, its schema, a network and a notebook that run as they are."""
