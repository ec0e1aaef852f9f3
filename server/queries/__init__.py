"""Sessions of queries: one release a batch, reserved before it is asked, committed before shown."""
