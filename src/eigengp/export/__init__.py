"""Fitted models for other programs: ONNX graphs, and `eigengp.export.botorch` for BoTorch."""

from eigengp.export.onnx import to_onnx, write_onnx

__all__ = ["to_onnx", "write_onnx"]
