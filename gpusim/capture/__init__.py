"""Models out of other programs: PyTorch modules, traced without weights or a GPU, and ONNX graphs."""
