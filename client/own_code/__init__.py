"""Code of your own: functions and classes that a job names as 'module:name' or 'file.py:name'."""
