"""Methods that the paper compares with, and that are here for comparison."""
