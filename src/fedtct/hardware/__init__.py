"""The machine: its devices, its memory, GPU kernels that work on it, and float32 that is not rounded further."""
