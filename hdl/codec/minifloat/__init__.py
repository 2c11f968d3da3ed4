"""Conversion of binary32 values to narrow floating-point formats, for MX elements, bfloat16 and binary16."""
