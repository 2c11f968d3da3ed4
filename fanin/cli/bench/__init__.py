"""The benchmarks behind `fanin bench`."""
