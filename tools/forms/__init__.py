"""What NVIDIA's assembler takes, instruction by instruction."""
