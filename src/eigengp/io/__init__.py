"""Saved models: one file for all that a fitted model is, without pickle.

A file is written by `save`, or `model.save`, and read by `load`, or by `read`
with what is stored beside the model.
"""

from eigengp.io.container import SavedModelError
from eigengp.io.known import register
from eigengp.io.models import SUFFIX, Saved, load, read, save

__all__ = ["SUFFIX", "Saved", "SavedModelError", "load", "read", "register", "save"]
