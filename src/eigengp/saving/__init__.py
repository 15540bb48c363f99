"""Saved models: one file for all that a fitted model is, without pickle.

A file is written by `save`, or `model.save`, and read by `load`, or by `read`
with what is stored beside the model.
"""

from eigengp.saving.errors import SavedModelError
from eigengp.saving.models import SUFFIX, Saved, load, read, save
from eigengp.saving.registry import register

__all__ = ["SUFFIX", "Saved", "SavedModelError", "load", "read", "register", "save"]
