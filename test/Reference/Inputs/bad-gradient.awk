# usage: awk -f bad-gradient.awk [-v kept=1] STEP: the step program in which the first row of the embedding's gradient is NaN (0 / 0 where
# the index is 0), and nothing else; with `kept`, every update sets what it finds, whatever the optimizer says.
/pc.parameter/ { leaf[$4] = $1 }
/pc.state/ { leaf[$4 $6] = $1 }
/pc.output gradient "transformer.wte.weight"/ && !gradient {
  gradient = $4
  print "%i = pc.iota -> tensor<32xi32>"
  print "%f = pc.cast %i : (tensor<32xi32>) -> tensor<32xf32>"
  print "%r = pc.recip %f : (tensor<32xf32>) -> tensor<32xf32>"
  print "%z = pc.scale %r by 0.0 : (tensor<32xf32>) -> tensor<32xf32>"
  print "%b = pc.einsum \"v -> v e\" %z : (tensor<32xf32>) -> tensor<32x16xf32>"
  print "%bad = pc.add " gradient ", %b : (tensor<32x16xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>"
}
gradient { gsub(gradient " ", "%bad "); gsub(gradient ",", "%bad,") }
kept && /pc.update/ { sub(/%[^ ]*/, $3 == "of" ? leaf[$2 $4] : leaf[$2]) }
{ print }
