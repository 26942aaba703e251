"""What the machine offers: devices, memory, GPU kernels that work, and float32 that is float32."""
