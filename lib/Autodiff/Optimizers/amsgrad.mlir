// AdamW with AMSGrad: torch.optim.AdamW(amsgrad=True).
pc.optimizer "amsgrad" dims ["all"] states ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    scalars ["lr", "beta1", "beta2", "eps", "decay", "correction1", "correction2"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %m: tensor<?xf32>, %v: tensor<?xf32>, %old_max: tensor<?xf32>, %lr: tensor<f32>, %beta1: tensor<f32>, %beta2: tensor<f32>,
     %eps: tensor<f32>, %decay: tensor<f32>, %correction1: tensor<f32>, %correction2: tensor<f32>):
  %one = pc.constant 1.0 : tensor<f32>
  %rest1 = pc.sub %one, %beta1 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %rest2 = pc.sub %one, %beta2 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %m1_old = pc.einsum ", all -> all" %beta1, %m : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %m1_new = pc.einsum ", all -> all" %rest1, %g : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %m1 = pc.add %m1_old, %m1_new : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %square = pc.einsum "all, all -> all" %g, %g : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %v1_old = pc.einsum ", all -> all" %beta2, %v : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %v1_new = pc.einsum ", all -> all" %rest2, %square : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %v1 = pc.add %v1_old, %v1_new : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %max = pc.select less %old_max, %v1, %v1, %old_max : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  // denominator = sqrt(max) / sqrt(correction2) + eps
  %c2 = pc.sqrt %correction2 : (tensor<f32>) -> tensor<f32>
  %r2 = pc.recip %c2 : (tensor<f32>) -> tensor<f32>
  %root = pc.sqrt %max : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = pc.einsum ", all -> all" %r2, %root : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %epsilon = pc.einsum " -> all" %eps : (tensor<f32>) -> tensor<?xf32>
  %below = pc.add %scaled, %epsilon : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %inverse = pc.recip %below : (tensor<?xf32>) -> tensor<?xf32>
  %ratio = pc.einsum "all, all -> all" %m1, %inverse : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %r1 = pc.recip %correction1 : (tensor<f32>) -> tensor<f32>
  %rate1 = pc.einsum ", ->" %lr, %r1 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %step = pc.einsum ", all -> all" %rate1, %ratio : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %rate = pc.einsum ", ->" %lr, %decay : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %shrink = pc.einsum ", all -> all" %rate, %w : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %decayed = pc.sub %w, %shrink : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %new = pc.sub %decayed, %step : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  pc.yield %new, %m1, %v1, %max : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}
