"""Boards whose bitstream a vendor's tool makes: projects for Vivado and Quartus, and what stands in their tops."""
