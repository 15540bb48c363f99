"""Arrays of any library, memory that is used again, products and threads."""
