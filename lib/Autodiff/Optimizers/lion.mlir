// Lion (Chen et al. 2023, algorithm 2): the sign of an average of momentum and gradient.
pc.optimizer "lion" dims ["all"] states ["exp_avg"] scalars ["lr", "decay", "beta1", "beta2"]
    settings {beta1 = 0.9, beta2 = 0.99} {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %m: tensor<?xf32>, %lr: tensor<f32>, %decay: tensor<f32>,
     %beta1: tensor<f32>, %beta2: tensor<f32>):
  %one = pc.constant 1.0 : tensor<f32>
  %rest1 = pc.sub %one, %beta1 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %rest2 = pc.sub %one, %beta2 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  // The sign of the average: 1, -1 or 0.
  %c_old = pc.einsum ", all -> all" %beta1, %m : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %c_new = pc.einsum ", all -> all" %rest1, %g : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %c = pc.add %c_old, %c_new : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %zero = pc.constant 0.0 : tensor<f32>
  %minus_one = pc.constant -1.0 : tensor<f32>
  %zeros = pc.einsum " -> all" %zero : (tensor<f32>) -> tensor<?xf32>
  %ones = pc.einsum " -> all" %one : (tensor<f32>) -> tensor<?xf32>
  %minus_ones = pc.einsum " -> all" %minus_one : (tensor<f32>) -> tensor<?xf32>
  %negative = pc.select less %c, %zeros, %minus_ones, %zeros : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %sign = pc.select less %zeros, %c, %ones, %negative : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %rate = pc.einsum ", ->" %lr, %decay : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %shrink = pc.einsum ", all -> all" %rate, %w : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %decayed = pc.sub %w, %shrink : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %step = pc.einsum ", all -> all" %lr, %sign : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %new = pc.sub %decayed, %step : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %kept_old = pc.einsum ", all -> all" %beta2, %m : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %kept_new = pc.einsum ", all -> all" %rest2, %g : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %kept = pc.add %kept_old, %kept_new : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  pc.yield %new, %kept : tensor<?xf32>, tensor<?xf32>
}
