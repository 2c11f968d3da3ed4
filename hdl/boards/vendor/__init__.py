"""Boards whose bitstream a vendor's tool makes: projects for Vivado and Quartus, and their tops."""
