"""usage: squares.py N: prints a model with one layer that squares a value N times."""

import sys

count = int(sys.argv[1])
print(
    """pc.program "squares" batch 2 sequence 2 vocabulary 2 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [2, 2], start = [0, 0], size = [2, 2]> : tensor<2x2xf32> loc("w")
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x2xi32>
  %x0 = pc.embedding %w, %tokens : (tensor<2x2xf32>, tensor<2x2xi32>) -> tensor<2x2x2xf32> loc("h.0")"""
)
for i in range(count):
    print(
        f'  %x{i + 1} = pc.einsum "b s e, b s e -> b s e" %x{i}, %x{i} : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x2xf32> loc("h.0")'
    )
print(f'  %sum = pc.einsum "b s e ->" %x{count} : (tensor<2x2x2xf32>) -> tensor<f32> loc("loss")')
print('  pc.output loss "loss" %sum : tensor<f32>\n  return\n}')
