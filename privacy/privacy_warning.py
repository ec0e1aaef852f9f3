"""`PrivacyWarning`: something that epsilon does not cover, or that adds to what it counts."""


class PrivacyWarning(UserWarning):
    """Warning about what a promise leaves out."""
