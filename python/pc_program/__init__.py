"""Programs that pc compiles, as the packages of the front ends write them: dims, values, rewrites, text, files and checks.

Needs the standard library only. pc_torch and pc_jax read a model and build it with this package.
"""
