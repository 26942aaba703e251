"""What the machine offers: memory, GPU kernels that work, and float32 that is float32."""
