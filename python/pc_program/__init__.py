"""Writes programs that pc compiles. Front ends (pc_torch, pc_jax) read a model and build its program with this package,
which has dims, values, rewrites, text, files and checks. It needs only the standard library."""
