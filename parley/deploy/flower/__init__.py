"""Flower as the carrier of messages: SuperLink, SuperNodes, and what guards them."""
