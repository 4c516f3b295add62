// Globs choose the groups of parameters. Each group has its own hyper-parameters. Bad globs and settings are refused.
// RUN: pc-opt %s --pc-group-parameters="groups={*.bias:lr=2x,decay=0.5x,beta1=0.8 head:decay=0} freeze=fc.weight decay=matrices" -o %t.model
// RUN: FileCheck %s < %t.model
// RUN: pc-opt %t.model --pc-differentiate | FileCheck %s --check-prefix=STEP
// RUN: not pc-opt %s --pc-group-parameters="groups=*.bia:decay=0" 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not pc-opt %s --pc-group-parameters="groups={fc.*|x:decay=0 *.bias:decay=1}" 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: not pc-opt %s --pc-group-parameters="groups={*.bias:decay=0} freeze=fc.*" 2>&1 | FileCheck %s --check-prefix=FROZEN
// RUN: not pc-opt %s --pc-group-parameters="freeze=*" 2>&1 | FileCheck %s --check-prefix=EVERYTHING
// RUN: not pc-opt %s --pc-group-parameters="groups=dim=3:decay=0" 2>&1 | FileCheck %s --check-prefix=DIMS
// RUN: not pc-opt %s --pc-group-parameters="groups={dim>=2:lr=2x head:decay=0}" 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: not pc-opt %s --pc-group-parameters="groups=dim>2:decay=0" 2>&1 | FileCheck %s --check-prefix=CONDITION
// RUN: pc-opt %s --pc-group-parameters="groups={dim>=2:lr=2x norm|dim<=1:decay=0}" | FileCheck %s --check-prefix=BY-DIMS
// RUN: not pc-opt %s --pc-group-parameters="freeze=fd.*" 2>&1 | FileCheck %s --check-prefix=FREEZE
// RUN: not pc-opt %s --pc-group-parameters="groups=*:lr=0.1" 2>&1 | FileCheck %s --check-prefix=RATE
// RUN: not pc-opt %s --pc-group-parameters="groups=*:rate=1" 2>&1 | FileCheck %s --check-prefix=SETTING
// RUN: not pc-opt %s --pc-group-parameters="groups={*:decay=0,decay=0.5x}" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not pc-opt %s --pc-group-parameters="groups=*:decay=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not pc-opt %s --pc-group-parameters="groups=*:beta2=1" 2>&1 | FileCheck %s --check-prefix=BETA
// RUN: not pc-opt %s --pc-group-parameters="groups=[:decay=1" 2>&1 | FileCheck %s --check-prefix=GLOB
// RUN: not pc-opt %s --pc-group-parameters="decay=vectors" 2>&1 | FileCheck %s --check-prefix=DECAY

// NOTHING: error: --group: '*.bia' fits no parameter, whose names are such as 'fc.bias' and 'head'
// TWO: error: --group: 'fc.bias' belongs to two groups, 'fc.*|x' and '*.bias'
// FROZEN: error: --group=*.bias: 'fc.bias' is frozen, so the optimizer does not update it
// EVERYTHING: error: --freeze: every parameter is frozen, so there is nothing to train
// DIMS: error: --group: 'dim=3' fits no parameter, whose names are such as 'fc.bias' and 'head'
// BOTH: error: --group: 'head' belongs to two groups, 'dim>=2' and 'head'
// CONDITION: error: --group=dim>2 has 'dim>2', which is not a number of dims; write dim=1, dim>=2 or dim<=1
// FREEZE: error: --freeze: 'fd.*' fits no parameter, whose names are such as 'fc.bias' and 'head'
// RATE: error: --group=*:lr=0.1: the learning rate of a group is a factor of --lr; write lr=0.1x
// SETTING: error: --group=*:rate=1: 'rate=1' is not a setting; expected lr=0.1x, decay=0, decay=0.5x, beta1, beta2, eps, optimizer, sparsity, every or until
// TWICE: error: --group=*:decay=0,decay=0.5x: 'decay' occurs twice
// NEGATIVE: error: --group=*:decay=-1: 'decay=-1' needs a number of at least 0
// BETA: error: --group=*:beta2=1: 'beta2=1' needs a number below 1
// GLOB: error: --group=[ is not a glob: invalid glob pattern
// DECAY: error: --decay=vectors: expected matrices

// CHECK: pc.parameter "wte" group {decay = 0.000000e+00 : f64, name = "no decay"} dims
// CHECK: pc.parameter "fc.weight" frozen dims
// CHECK: pc.parameter "fc.bias" group {beta1 = 8.000000e-01 : f64, decay_factor = 5.000000e-01 : f64, lr_factor = 2.000000e+00 : f64, name = "*.bias"} dims
// CHECK: pc.parameter "norm" group {decay = 0.000000e+00 : f64, name = "no decay"} dims
// CHECK: pc.parameter "mix" dims
// CHECK: pc.parameter "head" group {decay = 0.000000e+00 : f64, name = "head"} dims

// BY-DIMS: pc.parameter "wte" group {lr_factor = 2.000000e+00 : f64, name = "dim>=2"} dims
// BY-DIMS: pc.parameter "fc.weight" group {lr_factor = 2.000000e+00 : f64, name = "dim>=2"} dims
// BY-DIMS: pc.parameter "fc.bias" group {decay = 0.000000e+00 : f64, name = "norm|dim<=1"} dims
// BY-DIMS: pc.parameter "norm" group {decay = 0.000000e+00 : f64, name = "norm|dim<=1"} dims
// BY-DIMS: pc.parameter "mix" group {lr_factor
// BY-DIMS: pc.parameter "head" group {lr_factor

// STEP-NOT: pc.output gradient "fc.weight"
// STEP: %[[ALL:.*]] = pc.input hyper dims ["hyper"] : tensor<9xf32>
// STEP: pc.clip_coefficient %{{.*}}, %[[ALL]]
// STEP: %[[NONE:.*]] = pc.input hyper group {decay = 0.000000e+00 : f64, name = "no decay"} dims ["hyper"] : tensor<9xf32>
// STEP: pc.adamw {{.*}}, %[[NONE]] :
// STEP-NEXT: pc.update "wte"
// STEP: %[[BIAS:.*]] = pc.input hyper group {beta1
// STEP: pc.adamw {{.*}}, %[[BIAS]] :
// STEP-NEXT: pc.update "fc.bias"
// STEP-NOT: pc.input
// STEP: pc.adamw {{.*}}, %[[NONE]] :
// STEP-NEXT: pc.update "norm"
// STEP: pc.adamw {{.*}}, %[[ALL]] :
// STEP-NEXT: pc.update "mix"
// STEP: %[[HEAD:.*]] = pc.input hyper group {decay = 0.000000e+00 : f64, name = "head"}
// STEP: pc.adamw {{.*}}, %[[HEAD]] :
// STEP-NEXT: pc.update "head"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %x = pc.embedding %wte, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %w = pc.parameter "fc.weight" dims ["embed", "ffn"] init <normal, 1.0> source <"fc.weight", shape = [4, 6], start = [0, 0], size = [4, 6]> : tensor<4x6xf32>
  %b = pc.parameter "fc.bias" dims ["ffn"] init <normal, 1.0> source <"fc.bias", shape = [6], start = [0], size = [6]> : tensor<6xf32>
  %p = pc.einsum "b s e, e f -> b s f" %x, %w : (tensor<2x3x4xf32>, tensor<4x6xf32>) -> tensor<2x3x6xf32>
  %bb = pc.einsum "f -> b s f" %b : (tensor<6xf32>) -> tensor<2x3x6xf32>
  %pb = pc.add %p, %bb : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %g = pc.parameter "norm" dims ["ffn"] init <fill, 1.0> source <"norm", shape = [6], start = [0], size = [6]> : tensor<6xf32>
  %n, %rstd = pc.rms_norm %pb, %g eps 1.0e-05 : (tensor<2x3x6xf32>, tensor<6xf32>) -> (tensor<2x3x6xf32>, tensor<2x3xf32>)
  %m = pc.parameter "mix" dims ["ffn", "width"] init <normal, 1.0> source <"mix", shape = [6, 4], start = [0, 0], size = [6, 4]> : tensor<6x4xf32>
  %h = pc.einsum "b s f, f w -> b s w" %n, %m : (tensor<2x3x6xf32>, tensor<6x4xf32>) -> tensor<2x3x4xf32>
  %head = pc.parameter "head" dims ["width", "width2"] init <normal, 1.0> source <"head", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<4x4xf32>
  %y = pc.einsum "b s w, w v -> b s v" %h, %head : (tensor<2x3x4xf32>, tensor<4x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s v, b s v ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
