"""Approvals by a party's owner: pending requests, and a page on the owner's own machine."""
