// RUN: pc-opt %s --pc-differentiate=optimizer=lion --pc-verify-step --split-input-file | FileCheck %s --check-prefix=LION
// RUN: pc-opt %s --pc-differentiate=optimizer=muon:momentum=0.5 --pc-verify-step --split-input-file | FileCheck %s --check-prefix=MUON
// RUN: pc-opt %s --pc-differentiate=optimizer=adafactor:eps2=0.25,d=0.5 --pc-verify-step --split-input-file | FileCheck %s --check-prefix=ADAFACTOR
// RUN: pc-opt %s --pc-differentiate="optimizer=sgd ema=0.75" --pc-verify-step --split-input-file | FileCheck %s --check-prefix=EMA
// RUN: pc-opt %s --pc-differentiate=optimizer=mine --pc-verify-step --split-input-file | FileCheck %s --check-prefix=MINE
// An optimizer as text is copied for each parameter, with the parameter's shape. A step whose coefficient is NaN keeps the old values.

pc.optimizer "mine" dims ["all"] states ["sum"] scalars ["lr", "half"] settings {half = 0.5} {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %old: tensor<?xf32>, %lr: tensor<f32>, %half: tensor<f32>):
  %kept = pc.einsum ", all -> all" %half, %old : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %sum = pc.add %kept, %g : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %step = pc.einsum ", all -> all" %lr, %sum : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %new = pc.sub %w, %step : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  pc.yield %new, %sum : tensor<?xf32>, tensor<?xf32>
}

// With Muon, AdamW updates the table of the embedding and the head. The matrix has its rows in one dim and its 2 x 3
// columns in two.
func.func @model() {
  %tokens = pc.input tokens dims ["batch"] : tensor<4xi32>
  %targets = pc.input targets dims ["batch"] : tensor<4xi32>
  %table = pc.parameter "table" dims ["vocab", "embed"] init <fill, 1.0> source <"table", shape = [5, 8], start = [0, 0], size = [5, 8]> : tensor<5x8xf32>
  %w = pc.parameter "w" dims ["embed", "heads", "head"] init <fill, 1.0> source <"w", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x2x3xf32>
  %head = pc.parameter "head" dims ["vocab", "heads", "head"] init <fill, 1.0> source <"head", shape = [5, 6], start = [0, 0], size = [5, 6]> : tensor<5x2x3xf32>
  %x = pc.embedding %table, %tokens : (tensor<5x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %y = pc.einsum "b e, e h d -> b h d" %x, %w : (tensor<4x8xf32>, tensor<8x2x3xf32>) -> tensor<4x2x3xf32>
  %logits = pc.einsum "b h d, v h d -> b v" %y, %head : (tensor<4x2x3xf32>, tensor<5x2x3xf32>) -> tensor<4x5xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<4x5xf32>, tensor<4xi32>) -> tensor<4xf32>
  %loss = pc.einsum "b ->" %nll : (tensor<4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// LION-NOT: pc.optimizer
// LION: %[[W:.*]] = pc.parameter "w" group {name = "lion", optimizer = "lion"} dims
// LION: %[[SUMS:.*]]:4 = pc.accumulate
// LION: %[[C:.*]] = pc.clip_coefficient
// LION: %[[G:.*]] = pc.einsum ", x0 x1 x2 -> x0 x1 x2" %[[C]], %[[SUMS]]#2
// LION: %[[M:.*]] = pc.state "exp_avg" of "w" dims ["embed", "heads", "head"] : tensor<8x2x3xf32>
// LION: %[[OLD:.*]] = pc.scale %[[M]] by 9.000000e-01
// LION: %[[NEW:.*]] = pc.scale %[[G]] by 0.09{{9*}}
// LION: %[[MIX:.*]] = pc.add %[[OLD]], %[[NEW]]
// LION: pc.select less
// LION: pc.scale %[[M]] by 0.98999
// LION: %[[ALL:.*]] = pc.einsum " -> x0 x1 x2" %[[C]]
// LION: %[[KEPT:.*]] = pc.select equal %[[ALL]], %[[ALL]], %{{.*}}, %[[W]]
// LION: pc.update "w" %[[KEPT]]
// LION: %[[KEPT:.*]] = pc.select equal %[[ALL]], %[[ALL]], %{{.*}}, %[[M]]
// LION: pc.update "exp_avg" of "w" %[[KEPT]]

// MUON: pc.parameter "table" dims
// MUON: pc.parameter "w" group {name = "muon:momentum=0.5", optimizer = "muon:momentum=0.5"} dims
// MUON: pc.parameter "head" dims
// MUON: pc.adamw
// MUON: pc.state "momentum_buffer" of "w"
// The matrix has 8 rows and 6 columns, so columns are the shorter side.
// MUON: pc.einsum "long short0 short1, long other0 other1 -> short0 short1 other0 other1" %{{.*}} : (tensor<8x2x3xf32>, tensor<8x2x3xf32>) -> tensor<2x3x2x3xf32>
// MUON: pc.scale %{{.*}} by 1.1547005383792515
// MUON: pc.adamw

// MINE: pc.parameter "w" group {name = "mine@[[HASH:[0-9a-f]+]]", optimizer = "mine@[[HASH]]"} dims
// MINE: pc.state "sum" of "w"
// MINE: pc.scale %{{.*}} by 5.000000e-01

// The mean of squares in a row divides by the 6 columns.
// ADAFACTOR: pc.parameter "w" group {name = "adafactor:eps2=0.25,d=0.5", optimizer = "adafactor:eps2=0.25,d=0.5"} dims
// ADAFACTOR: pc.state "step" of "w" dims [] : tensor<f32>
// ADAFACTOR: %[[ROW:.*]] = pc.state "row_var" of "w" dims ["embed"] : tensor<8xf32>
// ADAFACTOR: pc.state "col_var" of "w" dims ["heads", "head"] : tensor<2x3xf32>
// ADAFACTOR: %[[SQUARES:.*]] = pc.einsum "rows columns0 columns1, rows columns0 columns1 -> rows"
// ADAFACTOR: pc.scale %[[SQUARES]] by 0.16666666666666666
// ADAFACTOR: pc.select equal {{.*}}, %[[ROW]] : (tensor<8xf32>

// The average is the parameter after the first step, and moves by a quarter of the difference after the others.
// EMA: %[[W:.*]] = pc.parameter "w"
// EMA: %[[C:.*]] = pc.clip_coefficient
// EMA: %[[NEW:.*]] = pc.sgd %[[W]],
// EMA: pc.update "w" %[[NEW]]
// EMA: %[[OLD:.*]] = pc.state "ema" of "w" dims ["embed", "heads", "head"] : tensor<8x2x3xf32>
// EMA: %[[BEGUN:.*]] = pc.state "ema_begun" of "w" dims [] : tensor<f32>
// EMA: %[[ONE:.*]] = pc.constant 1.0
// EMA: %[[REST:.*]] = pc.constant 2.500000e-01
// EMA: %[[RATE:.*]] = pc.select less %[[BEGUN]], %[[ONE]], %[[ONE]], %[[REST]]
// EMA: %[[CHANGE:.*]] = pc.sub %[[NEW]], %[[OLD]]
// EMA: pc.einsum ", x0 x1 x2 -> x0 x1 x2" %[[RATE]], %[[CHANGE]]
// EMA: pc.update "ema" of "w"
// EMA: pc.select equal %[[C]], %[[C]], %[[ONE]], %[[BEGUN]]
