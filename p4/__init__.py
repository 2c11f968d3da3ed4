"""The switch program: one description, printed for Tofino (TNA) and for BMv2 (v1model)."""
