"""Adder trees and bit-serial multipliers."""
