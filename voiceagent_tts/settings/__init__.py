"""What can be set on a server, subject by subject. Knows no environment and no files."""
