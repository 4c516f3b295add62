// LoRA: parts of one tensor share A, weights may be stored transposed, and everything else is frozen.
// RUN: pc-opt %s --pc-add-adapters="lora=rank=2,alpha=3,targets=qkv|o_proj,dropout=0.5" -o %t.model
// RUN: FileCheck %s < %t.model
// RUN: pc-opt %t.model --pc-differentiate | FileCheck %s --check-prefix=STEP
// RUN: pc-opt %s --pc-add-adapters="lora=rank=2,alpha=2.5,targets=h.*.o_pro?" | FileCheck %s --check-prefix=GLOB
// RUN: not pc-opt %t.model --pc-add-adapters="lora=rank=2,alpha=3,targets=qkv" 2>&1 | FileCheck %s --check-prefix=AGAIN
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=2,alpha=3,targets=o_proj|v_proj" 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=2,alpha=3,targets=wte" 2>&1 | FileCheck %s --check-prefix=TABLE
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=2,alpha=3,targets=norm" 2>&1 | FileCheck %s --check-prefix=VECTOR
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=2,alpha=3,targets=o_proj.bias" 2>&1 | FileCheck %s --check-prefix=BIAS
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=2,alpha=3,targets=gate" 2>&1 | FileCheck %s --check-prefix=EXPERTS
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=2,alpha=3,targets=half" 2>&1 | FileCheck %s --check-prefix=HALF
// RUN: not pc-opt %s --pc-add-adapters="lora=alpha=3,targets=qkv" 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=0,alpha=3,targets=qkv" 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=1,alpha=-1,targets=qkv" 2>&1 | FileCheck %s --check-prefix=ALPHA
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=1,alpha=1,targets=qkv,dropout=1" 2>&1 | FileCheck %s --check-prefix=DROPOUT
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=1,rank=2,alpha=1,targets=qkv" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=1,alpha=1,targets=qkv,bias=all" 2>&1 | FileCheck %s --check-prefix=SETTING
// RUN: not pc-opt %s --pc-add-adapters="lora=rank=1,alpha=1,targets=qkv|" 2>&1 | FileCheck %s --check-prefix=EMPTY

// AGAIN: error: --lora: this model has adapters already
// NOTHING: error: --lora: the target 'v_proj' fits no weight; products of the model have qkv, o_proj
// TABLE: error: --lora: the targets 'wte' include 'wte.weight', which cannot have an adapter: an embedding reads it as a table
// VECTOR: error: --lora: the targets 'norm' include 'norm.weight', which cannot have an adapter: it is not the matrix of a product
// BIAS: include 'h.0.o_proj.bias', which cannot have an adapter: it is not named as the weight of a module
// EXPERTS: include 'h.0.gate.weight', which cannot have an adapter: it is one of experts, or their router
// HALF: include 'h.0.half.weight', which cannot have an adapter: it holds only some inputs of 'h.0.half.weight'
// RANK: error: --lora=alpha=3,targets=qkv: 'rank' is missing; expected rank=N,alpha=X,targets=NAME|NAME and maybe dropout=P
// ZERO: 'rank=0' needs a whole number of at least 1
// ALPHA: 'alpha=-1' needs a positive number
// DROPOUT: 'dropout=1' needs a number of at least 0 and below 1
// TWICE: 'rank' occurs twice
// SETTING: 'bias=all' is not a setting
// EMPTY: 'targets=qkv|' has an empty glob

// CHECK: pc.program
// CHECK-SAME: means "[{\22at\22:[\22a\22],\22default\22:null,\22values\22:[1]},{\22adapter\22:{
// CHECK-SAME: \22base_model_name_or_path\22:null,\22bias\22:\22none\22,\22fan_in_fan_out\22:true,\22inference_mode\22:true,\22lora_alpha\22:3,\22lora_dropout\22:0.5,\22peft_type\22:\22LORA\22,\22r\22:2,\22target_modules\22:[\22qkv\22,\22o_proj\22],\22task_type\22:\22CAUSAL_LM\22}}]"
// CHECK: pc.parameter "wte.weight" frozen
// CHECK: %[[X:.*]] = pc.embedding
// CHECK: %[[WQ:.*]] = pc.parameter "h.0.qkv.weight:q" frozen
// CHECK: %[[A:.*]] = pc.parameter "h.0.qkv.lora_A.weight" dims ["lora_rank", "embed"] init <normal, 0.288{{.*}}> source <"base_model.model.h.0.qkv.lora_A.weight", shape = [2, 4], start = [0, 0], size = [2, 4]> : tensor<2x4xf32>
// CHECK: %[[BQ:.*]] = pc.parameter "h.0.qkv.lora_B.weight:q" dims ["kv_heads", "head_dim", "lora_rank"] init <fill, 0.000000e+00> source <"base_model.model.h.0.qkv.lora_B.weight", shape = [12, 2], start = [0, 0, 0], size = [2, 3, 2], view = [2, 6, 2]> : tensor<2x3x2xf32>
// CHECK: %[[R:.*]] = pc.input random key 1 dims ["random"]
// CHECK: %[[D:.*]] = pc.dropout %[[X]] random %[[R]] drop <32768>
// CHECK: %[[LOW:.*]] = pc.einsum "b s e, r e -> b s r" %[[D]], %[[A]]
// CHECK: %[[Q:.*]] = pc.einsum "b s e, e k d -> b s k d" %[[X]], %[[WQ]]
// CHECK: %[[UP:.*]] = pc.einsum "b s r, k d r -> b s k d" %[[LOW]], %[[BQ]]
// CHECK: %[[SCALED:.*]] = pc.scale %[[UP]] by 1.500000e+00
// CHECK: %[[SUM:.*]] = pc.add %[[Q]], %[[SCALED]]
// CHECK-NOT: lora_A
// CHECK: pc.parameter "h.0.qkv.lora_B.weight:k" dims {{.*}} shape = [12, 2], start = [0, 3, 0], size = [2, 3, 2], view = [2, 6, 2]>
// CHECK-NOT: pc.dropout
// CHECK: pc.einsum "b s r, k d r -> b s k d" %[[LOW]]
// CHECK: pc.einsum "b s k d, b s k d -> b s k d" %[[SUM]]
// CHECK: pc.parameter "h.0.o_proj.weight" frozen
// CHECK: pc.parameter "h.0.o_proj.lora_A.weight" dims ["lora_rank", "kv_heads", "head_dim"] {{.*}} shape = [2, 6], start = [0, 0], size = [2, 6]> : tensor<2x2x3xf32>
// CHECK: pc.parameter "h.0.o_proj.lora_B.weight" dims ["embed", "lora_rank"] {{.*}} shape = [4, 2], start = [0, 0], size = [4, 2]> : tensor<4x2xf32>
// CHECK: pc.input random key 2
// CHECK: pc.einsum "b s k d, r k d -> b s r"
// CHECK: pc.einsum "b s r, e r -> b s e"
// CHECK: pc.parameter "experts.*" frozen {{.*}} key = 13, {{.*}} key = 14

// Nothing below the first adapter has a gradient, and nothing that is frozen has one.
// STEP-NOT: pc.embedding_grad
// STEP-NOT: pc.output gradient "{{.*}}{{o_proj|qkv}}.weight
// STEP: pc.output gradient "h.0.qkv.lora_A.weight"
// STEP: pc.update "h.0.qkv.lora_A.weight"
// STEP-NOT: pc.update "h.0.qkv.weight

// GLOB: \22lora_alpha\22:2.5{{.*}}\22target_modules\22:[\22h.0.o_proj\22]
pc.program "mine" batch 2 sequence 3 vocabulary 5 config "{}" means "[{\22at\22:[\22a\22],\22default\22:null,\22values\22:[1]}]"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %wte = pc.parameter "wte.weight" dims ["vocab", "embed"] init <normal, 1.0> source <"wte.weight", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %e = pc.embedding %wte, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %r = pc.input random key 0 dims ["random"] : tensor<5xi32>
  %x = pc.dropout %e random %r drop <6554> : (tensor<2x3x4xf32>, tensor<5xi32>) -> tensor<2x3x4xf32>
  %wq = pc.parameter "h.0.qkv.weight:q" dims ["embed", "kv_heads", "head_dim"] init <normal, 1.0> source <"h.0.qkv.weight", shape = [4, 12], start = [0, 0, 0], size = [4, 2, 3], view = [4, 2, 6]> : tensor<4x2x3xf32>
  %q = pc.einsum "b s e, e k d -> b s k d" %e, %wq : (tensor<2x3x4xf32>, tensor<4x2x3xf32>) -> tensor<2x3x2x3xf32>
  %wk = pc.parameter "h.0.qkv.weight:k" dims ["embed", "kv_heads", "head_dim"] init <normal, 1.0> source <"h.0.qkv.weight", shape = [4, 12], start = [0, 0, 3], size = [4, 2, 3], view = [4, 2, 6]> : tensor<4x2x3xf32>
  %k = pc.einsum "b s e, e k d -> b s k d" %e, %wk : (tensor<2x3x4xf32>, tensor<4x2x3xf32>) -> tensor<2x3x2x3xf32>
  %h = pc.einsum "b s k d, b s k d -> b s k d" %q, %k : (tensor<2x3x2x3xf32>, tensor<2x3x2x3xf32>) -> tensor<2x3x2x3xf32>
  %wo = pc.parameter "h.0.o_proj.weight" dims ["embed", "kv_heads", "head_dim"] init <normal, 1.0> source <"h.0.o_proj.weight", shape = [4, 6], start = [0, 0], size = [4, 6]> : tensor<4x2x3xf32>
  %o = pc.einsum "b s k d, e k d -> b s e" %h, %wo : (tensor<2x3x2x3xf32>, tensor<4x2x3xf32>) -> tensor<2x3x4xf32>
  %bo = pc.parameter "h.0.o_proj.bias" dims ["embed"] init <fill, 0.0> source <"h.0.o_proj.bias", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %norm = pc.parameter "norm.weight" dims ["embed"] init <fill, 1.0> source <"norm.weight", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %scales = pc.einsum "e, e -> e" %bo, %norm : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %y = pc.einsum "b s e, b s e, e -> b s e" %o, %x, %scales : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
  %gate = pc.parameter "h.0.gate.weight" dims ["experts", "embed"] init <normal, 1.0> source <"h.0.gate.weight", shape = [2, 4], start = [0, 0], size = [2, 4]> : tensor<2x4xf32>
  %g = pc.einsum "b s e, n e -> b s n" %y, %gate : (tensor<2x3x4xf32>, tensor<2x4xf32>) -> tensor<2x3x2xf32>
  %half = pc.parameter "h.0.half.weight" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.half.weight", shape = [2, 8], start = [0, 4], size = [2, 4]> : tensor<2x4xf32>
  %f = pc.einsum "b s e, f e -> b s f" %y, %half : (tensor<2x3x4xf32>, tensor<2x4xf32>) -> tensor<2x3x2xf32>
  %experts = pc.parameter "experts.*" dims ["experts", "embed"] init <normal, 1.0> along 0 parts [#pc.part<"experts.0.weight", key = 7, size = 1, source = <"experts.0.weight", shape = [4], start = [0], size = [4]>>, #pc.part<"experts.1.weight", key = 8, size = 1, source = <"experts.1.weight", shape = [4], start = [0], size = [4]>>] : tensor<2x4xf32>
  %z = pc.einsum "b s n, b s n, n e -> b s e" %g, %f, %experts : (tensor<2x3x2xf32>, tensor<2x3x2xf32>, tensor<2x4xf32>) -> tensor<2x3x4xf32>
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x3xf32>
  %loss = pc.einsum "b s e, b s ->" %z, %weights : (tensor<2x3x4xf32>, tensor<2x3xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
