"""What travels: fields and headers, a file per protocol."""
