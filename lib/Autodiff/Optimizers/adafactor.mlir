// Adafactor (Shazeer and Stern 2018), as torch.optim.Adafactor: a matrix has the averages of its squared gradient by row
// and by column instead of one for each element. Each matrix of a stack is treated by itself.
pc.optimizer "adafactor" dims ["stack", "rows", "columns"] others "adafactor_vectors"
    states ["step", "row_var", "col_var"] over [[], ["stack", "rows"], ["stack", "columns"]]
    scalars ["lr", "decay", "rows", "columns", "beta2_decay", "eps1", "eps2", "d"]
    settings {beta2_decay = -0.8, eps1 = 1.1920928955078125e-07, eps2 = 1.0e-03, d = 1.0} {
^bb0(%w: tensor<?x?x?xf32>, %g: tensor<?x?x?xf32>, %step: tensor<f32>, %row: tensor<?x?xf32>, %column: tensor<?x?xf32>, %lr: tensor<f32>,
     %decay: tensor<f32>, %rows: tensor<f32>, %columns: tensor<f32>, %beta2_decay: tensor<f32>, %eps1: tensor<f32>, %eps2: tensor<f32>, %d: tensor<f32>):
  // Step t; the rate is min(lr, 1 / sqrt(t)), and the averages forget 1 - t^beta2_decay.
  %one = pc.constant 1.0 : tensor<f32>
  %t = pc.add %step, %one : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %log = pc.log %t : (tensor<f32>) -> tensor<f32>
  %power = pc.einsum ", ->" %beta2_decay, %log : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %fresh = pc.exp %power : (tensor<f32>) -> tensor<f32>
  %kept = pc.sub %one, %fresh : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %root = pc.sqrt %t : (tensor<f32>) -> tensor<f32>
  %most = pc.recip %root : (tensor<f32>) -> tensor<f32>
  %rho = pc.select less %lr, %most, %lr, %most : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  // least = eps1^2, where eps1 bounds the root.
  %least = pc.einsum ", ->" %eps1, %eps1 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  // Averages of the mean of squares in each row and in each column.
  %per_row = pc.recip %columns : (tensor<f32>) -> tensor<f32>
  %per_column = pc.recip %rows : (tensor<f32>) -> tensor<f32>
  %row_squares = pc.einsum "stack rows columns, stack rows columns -> stack rows" %g, %g : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?xf32>
  %row_mean = pc.einsum ", stack rows -> stack rows" %per_row, %row_squares : (tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %row_var_old = pc.einsum ", stack rows -> stack rows" %kept, %row : (tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %row_var_new = pc.einsum ", stack rows -> stack rows" %fresh, %row_mean : (tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %row_var = pc.add %row_var_old, %row_var_new : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %column_squares = pc.einsum "stack rows columns, stack rows columns -> stack columns" %g, %g : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?xf32>
  %column_mean = pc.einsum ", stack columns -> stack columns" %per_column, %column_squares : (tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %column_var_old = pc.einsum ", stack columns -> stack columns" %kept, %column : (tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %column_var_new = pc.einsum ", stack columns -> stack columns" %fresh, %column_mean : (tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %column_var = pc.add %column_var_old, %column_var_new : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  // v = row_var column_var / max(eps1, mean of row_var)
  %row_sum = pc.einsum "stack rows -> stack" %row_var : (tensor<?x?xf32>) -> tensor<?xf32>
  %center = pc.einsum ", stack -> stack" %per_column, %row_sum : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %eps1s = pc.einsum " -> stack" %eps1 : (tensor<f32>) -> tensor<?xf32>
  %middle = pc.select less %center, %eps1s, %eps1s, %center : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %over_middle = pc.recip %middle : (tensor<?xf32>) -> tensor<?xf32>
  %relative = pc.einsum "stack, stack rows -> stack rows" %over_middle, %row_var : (tensor<?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %v = pc.einsum "stack rows, stack columns -> stack rows columns" %relative, %column_var : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?x?xf32>
  %count = pc.einsum ", ->" %rows, %columns : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %leasts = pc.einsum " -> stack rows columns" %least : (tensor<f32>) -> tensor<?x?x?xf32>
  %bounded = pc.select less %v, %leasts, %leasts, %v : (tensor<?x?x?xf32>, tensor<?x?x?xf32>, tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %deviation = pc.sqrt %bounded : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %scaling = pc.recip %deviation : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %u = pc.einsum "stack rows columns, stack rows columns -> stack rows columns" %scaling, %g : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  // The update is divided by max(1, RMS(update) / d).
  %fraction = pc.recip %count : (tensor<f32>) -> tensor<f32>
  %squares = pc.einsum "stack rows columns, stack rows columns -> stack" %u, %u : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?xf32>
  %mean = pc.einsum ", stack -> stack" %fraction, %squares : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %rms = pc.sqrt %mean : (tensor<?xf32>) -> tensor<?xf32>
  %inverse_d = pc.recip %d : (tensor<f32>) -> tensor<f32>
  %excess = pc.einsum ", stack -> stack" %inverse_d, %rms : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %clipped = pc.clamp %excess from 1.0 to 3.0e+38 : (tensor<?xf32>) -> tensor<?xf32>
  %shrunk = pc.recip %clipped : (tensor<?xf32>) -> tensor<?xf32>
  // It is multiplied by max(eps2, RMS(parameter)) times the rate.
  %squares_w = pc.einsum "stack rows columns, stack rows columns -> stack" %w, %w : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?xf32>
  %mean_w = pc.einsum ", stack -> stack" %fraction, %squares_w : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %rms_w = pc.sqrt %mean_w : (tensor<?xf32>) -> tensor<?xf32>
  %eps2s = pc.einsum " -> stack" %eps2 : (tensor<f32>) -> tensor<?xf32>
  %size_w = pc.select less %rms_w, %eps2s, %eps2s, %rms_w : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %alpha = pc.einsum ", stack -> stack" %rho, %size_w : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %factor = pc.einsum "stack, stack -> stack" %alpha, %shrunk : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %change = pc.einsum "stack, stack rows columns -> stack rows columns" %factor, %u : (tensor<?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %rate = pc.einsum ", ->" %lr, %decay : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %shrink = pc.einsum ", stack rows columns -> stack rows columns" %rate, %w : (tensor<f32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %decayed = pc.sub %w, %shrink : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %new = pc.sub %decayed, %change : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  pc.yield %new, %t, %row_var, %column_var : tensor<?x?x?xf32>, tensor<f32>, tensor<?x?xf32>, tensor<?x?xf32>
}
// The same for vectors and other tensors that are not matrices: the second moment has their shape.
pc.optimizer "adafactor_vectors" dims ["all"] states ["step", "variance"] over [[], ["all"]]
    scalars ["lr", "decay", "size", "beta2_decay", "eps1", "eps2", "d"]
    settings {beta2_decay = -0.8, eps1 = 1.1920928955078125e-07, eps2 = 1.0e-03, d = 1.0} {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %step: tensor<f32>, %variance: tensor<?xf32>, %lr: tensor<f32>, %decay: tensor<f32>,
     %size: tensor<f32>, %beta2_decay: tensor<f32>, %eps1: tensor<f32>, %eps2: tensor<f32>, %d: tensor<f32>):
  // Step t; the rate is min(lr, 1 / sqrt(t)), and the averages forget 1 - t^beta2_decay.
  %one = pc.constant 1.0 : tensor<f32>
  %t = pc.add %step, %one : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %log = pc.log %t : (tensor<f32>) -> tensor<f32>
  %power = pc.einsum ", ->" %beta2_decay, %log : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %fresh = pc.exp %power : (tensor<f32>) -> tensor<f32>
  %kept = pc.sub %one, %fresh : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %root = pc.sqrt %t : (tensor<f32>) -> tensor<f32>
  %most = pc.recip %root : (tensor<f32>) -> tensor<f32>
  %rho = pc.select less %lr, %most, %lr, %most : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  // least = eps1^2, where eps1 bounds the root.
  %least = pc.einsum ", ->" %eps1, %eps1 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %square = pc.einsum "all, all -> all" %g, %g : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %v_old = pc.einsum ", all -> all" %kept, %variance : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %v_new = pc.einsum ", all -> all" %fresh, %square : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %v = pc.add %v_old, %v_new : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %leasts = pc.einsum " -> all" %least : (tensor<f32>) -> tensor<?xf32>
  %bounded = pc.select less %v, %leasts, %leasts, %v : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %deviation = pc.sqrt %bounded : (tensor<?xf32>) -> tensor<?xf32>
  %scaling = pc.recip %deviation : (tensor<?xf32>) -> tensor<?xf32>
  %u = pc.einsum "all, all -> all" %scaling, %g : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  // The update is divided by max(1, RMS(update) / d).
  %fraction = pc.recip %size : (tensor<f32>) -> tensor<f32>
  %squares = pc.einsum "all, all ->" %u, %u : (tensor<?xf32>, tensor<?xf32>) -> tensor<f32>
  %mean = pc.einsum ", ->" %fraction, %squares : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %rms = pc.sqrt %mean : (tensor<f32>) -> tensor<f32>
  %inverse_d = pc.recip %d : (tensor<f32>) -> tensor<f32>
  %excess = pc.einsum ", ->" %inverse_d, %rms : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %clipped = pc.clamp %excess from 1.0 to 3.0e+38 : (tensor<f32>) -> tensor<f32>
  %shrunk = pc.recip %clipped : (tensor<f32>) -> tensor<f32>
  // It is multiplied by max(eps2, RMS(parameter)) times the rate.
  %squares_w = pc.einsum "all, all ->" %w, %w : (tensor<?xf32>, tensor<?xf32>) -> tensor<f32>
  %mean_w = pc.einsum ", ->" %fraction, %squares_w : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %rms_w = pc.sqrt %mean_w : (tensor<f32>) -> tensor<f32>
  %size_w = pc.select less %rms_w, %eps2, %eps2, %rms_w : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %alpha = pc.einsum ", ->" %rho, %size_w : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %factor = pc.einsum ", ->" %alpha, %shrunk : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %change = pc.einsum ", all -> all" %factor, %u : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %rate = pc.einsum ", ->" %lr, %decay : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %shrink = pc.einsum ", all -> all" %rate, %w : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %decayed = pc.sub %w, %shrink : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %new = pc.sub %decayed, %change : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  pc.yield %new, %t, %v : tensor<?xf32>, tensor<f32>, tensor<?xf32>
}
