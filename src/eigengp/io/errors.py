"""What can be wrong with a saved model."""


class SavedModelError(ValueError):
    """A model cannot be saved, or a file is not, or no longer, a saved model."""
