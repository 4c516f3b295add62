// RUN: pc-opt %s -verify-diagnostics -split-input-file
// Each case breaks one constraint of pc.optimizer.

// expected-error@+1 {{expects dims ["all"], ["stack", "rows", "columns"] or ["stack", "short", "long"], got ["rows"] (C1)}}
pc.optimizer "a" dims ["rows"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>):
  pc.yield %w : tensor<?xf32>
}

// -----

// expected-error@+1 {{expects 3 arguments of type 'tensor<?xf32>' and 0 of type 'tensor<f32>'}}
pc.optimizer "a" dims ["all"] states ["m"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>):
  pc.yield %w, %g : tensor<?xf32>, tensor<?xf32>
}

// -----

// expected-error@+1 {{must yield the parameter and 1 states, of type 'tensor<?xf32>' (C3)}}
pc.optimizer "a" dims ["all"] states ["m"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %m: tensor<?xf32>):
  pc.yield %w : tensor<?xf32>
}

// -----

// An element cannot read the state of another element.
pc.optimizer "a" dims ["all"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>):
  // expected-error@+1 {{is not allowed in a definition of an optimizer, which sees only its own parameter, gradient, states and scalars}}
  %m = pc.state "exp_avg" of "other" dims ["x"] : tensor<?xf32>
  pc.yield %m : tensor<?xf32>
}

// -----

pc.optimizer "a" dims ["all"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>):
  // expected-error@+1 {{is not allowed in a definition}}
  pc.update "other" %g : tensor<?xf32>
  pc.yield %w : tensor<?xf32>
}

// -----

// expected-error@+1 {{has a scalar 'momentum' that is neither known nor a number in 'settings' (C5)}}
pc.optimizer "a" dims ["all"] scalars ["momentum"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %x: tensor<f32>):
  pc.yield %w : tensor<?xf32>
}

// -----

// expected-error@+1 {{has a setting 'momentum' that is not a scalar (C5)}}
pc.optimizer "a" dims ["all"] settings {momentum = 0.9} {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>):
  pc.yield %w : tensor<?xf32>
}

// -----

pc.optimizer "a" dims ["stack", "rows", "columns"] {
^bb0(%w: tensor<?x?x?xf32>, %g: tensor<?x?x?xf32>):
  // expected-error@+1 {{has 'columns' and 'rows' as factor 'n' (C6)}}
  %a = pc.einsum "s m n, s n m -> s m n" %w, %g : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  pc.yield %a : tensor<?x?x?xf32>
}

// -----

pc.optimizer "a" dims ["all"] scalars ["lr"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %lr: tensor<f32>):
  // expected-error@+1 {{has a factor 'x', but neither an operand nor the parameter has such a dim (C6)}}
  %a = pc.einsum " -> x" %lr : (tensor<f32>) -> tensor<?xf32>
  pc.yield %a : tensor<?xf32>
}

// -----

pc.optimizer "a" dims ["stack", "rows", "columns"] {
^bb0(%w: tensor<?x?x?xf32>, %g: tensor<?x?x?xf32>):
  %a = pc.einsum "s m n -> s n m" %w : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  // expected-error@+1 {{has operands with different dims (C6)}}
  %b = pc.add %w, %a : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  pc.yield %b : tensor<?x?x?xf32>
}

// -----

// expected-error@+1 {{expects 'over' to list, for each of 1 states, some of the dims ["stack", "rows", "columns"] in their order, got [["columns", "rows"]] (C7)}}
pc.optimizer "a" dims ["stack", "rows", "columns"] states ["m"] over [["columns", "rows"]] {
^bb0(%w: tensor<?x?x?xf32>, %g: tensor<?x?x?xf32>, %m: tensor<?x?xf32>):
  pc.yield %w, %m : tensor<?x?x?xf32>, tensor<?x?xf32>
}

// -----

// expected-error@+1 {{expects 'over' to list, for each of 1 states, some of the dims ["all"] in their order, got [] (C7)}}
pc.optimizer "a" dims ["all"] states ["m"] over [] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %m: tensor<?xf32>):
  pc.yield %w, %m : tensor<?xf32>, tensor<?xf32>
}

// -----

// expected-error@+1 {{expects 3 arguments of type 'tensor<?x?x?xf32>', except for states with fewer dims, and 0 of type 'tensor<f32>'}}
pc.optimizer "a" dims ["stack", "rows", "columns"] states ["m"] over [["stack", "rows"]] {
^bb0(%w: tensor<?x?x?xf32>, %g: tensor<?x?x?xf32>, %m: tensor<?x?x?xf32>):
  pc.yield %w, %m : tensor<?x?x?xf32>, tensor<?x?x?xf32>
}

// -----

// expected-error@+1 {{yields a value with the wrong dims for m (C6)}}
pc.optimizer "a" dims ["stack", "rows", "columns"] states ["m"] over [["stack", "rows"]] {
^bb0(%w: tensor<?x?x?xf32>, %g: tensor<?x?x?xf32>, %m: tensor<?x?xf32>):
  %sums = pc.einsum "stack rows columns -> stack columns" %g : (tensor<?x?x?xf32>) -> tensor<?x?xf32>
  pc.yield %w, %sums : tensor<?x?x?xf32>, tensor<?x?xf32>
}

// -----

// expected-error@+1 {{has a state 'm', but another state or --ema has the same name (C3)}}
pc.optimizer "mine" dims ["all"] states ["m", "m"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %m: tensor<?xf32>, %n: tensor<?xf32>):
  pc.yield %w, %m, %n : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}

// -----

// expected-error@+1 {{has a state 'ema', but another state or --ema has the same name (C3)}}
pc.optimizer "mine" dims ["all"] states ["ema"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %m: tensor<?xf32>):
  pc.yield %w, %m : tensor<?xf32>, tensor<?xf32>
}
