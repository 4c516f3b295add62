// Muon (Jordan et al. 2024), as torch.optim.Muon with Nesterov momentum: hidden matrices are updated by their
// orthogonalized momentum. Newton-Schulz is in f32.
pc.optimizer "muon" dims ["stack", "short", "long"] hidden states ["momentum_buffer"]
    scalars ["lr", "decay", "momentum", "rows", "columns"] settings {momentum = 0.95} {
^bb0(%w: tensor<?x?x?xf32>, %g: tensor<?x?x?xf32>, %m: tensor<?x?x?xf32>, %lr: tensor<f32>, %decay: tensor<f32>,
     %momentum: tensor<f32>, %rows: tensor<f32>, %columns: tensor<f32>):
  %one = pc.constant 1.0 : tensor<f32>
  %rest = pc.sub %one, %momentum : (tensor<f32>, tensor<f32>) -> tensor<f32>
  // Nesterov momentum.
  %buffer_old = pc.einsum ", stack short long -> stack short long" %momentum, %m : (tensor<f32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %buffer_new = pc.einsum ", stack short long -> stack short long" %rest, %g : (tensor<f32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %buffer = pc.add %buffer_old, %buffer_new : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %u_old = pc.einsum ", stack short long -> stack short long" %momentum, %buffer : (tensor<f32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %u_new = pc.einsum ", stack short long -> stack short long" %rest, %g : (tensor<f32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %u = pc.add %u_old, %u_new : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  // Newton-Schulz: x = a x + (b A + c A A) x five times, where A = x x^T, on the shorter side.
  %squares = pc.einsum "stack short long, stack short long -> stack" %u, %u : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?xf32>
  %root = pc.sqrt %squares : (tensor<?xf32>) -> tensor<?xf32>
  %norm = pc.clamp %root from 1.0e-07 to 3.0e+38 : (tensor<?xf32>) -> tensor<?xf32>
  %inverse = pc.recip %norm : (tensor<?xf32>) -> tensor<?xf32>
  %x0 = pc.einsum "stack, stack short long -> stack short long" %inverse, %u : (tensor<?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %a0 = pc.einsum "stack short long, stack other long -> stack short other" %x0, %x0 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %aa0 = pc.einsum "stack short mid, stack mid other -> stack short other" %a0, %a0 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ba0 = pc.scale %a0 by -4.775 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %caa0 = pc.scale %aa0 by 2.0315 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %p0 = pc.add %ba0, %caa0 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %px0 = pc.einsum "stack short other, stack other long -> stack short long" %p0, %x0 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ax0 = pc.scale %x0 by 3.4445 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %x1 = pc.add %ax0, %px0 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %a1 = pc.einsum "stack short long, stack other long -> stack short other" %x1, %x1 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %aa1 = pc.einsum "stack short mid, stack mid other -> stack short other" %a1, %a1 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ba1 = pc.scale %a1 by -4.775 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %caa1 = pc.scale %aa1 by 2.0315 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %p1 = pc.add %ba1, %caa1 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %px1 = pc.einsum "stack short other, stack other long -> stack short long" %p1, %x1 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ax1 = pc.scale %x1 by 3.4445 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %x2 = pc.add %ax1, %px1 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %a2 = pc.einsum "stack short long, stack other long -> stack short other" %x2, %x2 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %aa2 = pc.einsum "stack short mid, stack mid other -> stack short other" %a2, %a2 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ba2 = pc.scale %a2 by -4.775 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %caa2 = pc.scale %aa2 by 2.0315 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %p2 = pc.add %ba2, %caa2 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %px2 = pc.einsum "stack short other, stack other long -> stack short long" %p2, %x2 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ax2 = pc.scale %x2 by 3.4445 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %x3 = pc.add %ax2, %px2 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %a3 = pc.einsum "stack short long, stack other long -> stack short other" %x3, %x3 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %aa3 = pc.einsum "stack short mid, stack mid other -> stack short other" %a3, %a3 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ba3 = pc.scale %a3 by -4.775 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %caa3 = pc.scale %aa3 by 2.0315 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %p3 = pc.add %ba3, %caa3 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %px3 = pc.einsum "stack short other, stack other long -> stack short long" %p3, %x3 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ax3 = pc.scale %x3 by 3.4445 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %x4 = pc.add %ax3, %px3 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %a4 = pc.einsum "stack short long, stack other long -> stack short other" %x4, %x4 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %aa4 = pc.einsum "stack short mid, stack mid other -> stack short other" %a4, %a4 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ba4 = pc.scale %a4 by -4.775 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %caa4 = pc.scale %aa4 by 2.0315 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %p4 = pc.add %ba4, %caa4 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %px4 = pc.einsum "stack short other, stack other long -> stack short long" %p4, %x4 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %ax4 = pc.scale %x4 by 3.4445 : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %x5 = pc.add %ax4, %px4 : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  // The rate times sqrt(max(1, rows / columns)).
  %fewer = pc.recip %columns : (tensor<f32>) -> tensor<f32>
  %aspect = pc.einsum ", ->" %rows, %fewer : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %least = pc.clamp %aspect from 1.0 to 1.0e+30 : (tensor<f32>) -> tensor<f32>
  %factor = pc.sqrt %least : (tensor<f32>) -> tensor<f32>
  %adjusted = pc.einsum ", ->" %factor, %lr : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %rate = pc.einsum ", ->" %lr, %decay : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %shrink = pc.einsum ", stack short long -> stack short long" %rate, %w : (tensor<f32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %decayed = pc.sub %w, %shrink : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %step = pc.einsum ", stack short long -> stack short long" %adjusted, %x5 : (tensor<f32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %new = pc.sub %decayed, %step : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  pc.yield %new, %buffer : tensor<?x?x?xf32>, tensor<?x?x?xf32>
}
