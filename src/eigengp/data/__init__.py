"""Where row blocks come from: a new data source is a new file here."""
