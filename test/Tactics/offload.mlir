// States become values on disk. One carry brings a state to the device for its readers, and one takes the new value
// back; the step reads and writes nothing else there.
// RUN: pc-opt %s --pc-differentiate=optimizer=adamw --pc-set-mesh=mesh=dp=2 --pc-zero=stage=1 --pc-offload --pc-verify-placed -o %t.placed
// RUN: FileCheck %s < %t.placed
// CHECK: pc.accumulate
// CHECK: %[[M:.*]] = pc.state "exp_avg" of "w" {{.*}} : tensor<16x8xf32, #pc.place<[dp, _] in disk>>
// CHECK: %[[V:.*]] = pc.state "exp_avg_sq" of "w" {{.*}} : tensor<16x8xf32, #pc.place<[dp, _] in disk>>
// CHECK-DAG: %[[M_HERE:.*]] = pc.carry %[[M]] : (tensor<16x8xf32, #pc.place<[dp, _] in disk>>) -> tensor<16x8xf32, #pc.place<[dp, _]>>
// CHECK-DAG: %[[V_HERE:.*]] = pc.carry %[[V]]
// CHECK: %{{.*}}, %[[M_NEW:.*]], %{{.*}} = pc.adamw %{{.*}}, %{{.*}}, %[[M_HERE]], %[[V_HERE]],
// CHECK: %[[M_BACK:.*]] = pc.carry %[[M_NEW]] : (tensor<16x8xf32, #pc.place<[dp, _]>>) -> tensor<16x8xf32, #pc.place<[dp, _] in disk>>
// CHECK-NEXT: pc.update "exp_avg" of "w" %[[M_BACK]]

// Erasing it leaves the step, and local programs compute what the step computes.
// RUN: pc-opt %s --pc-differentiate=optimizer=adamw -o %t.step
// RUN: %same-step %t.step %t.placed

// Carries in start after the backward pass, those out are waited for at the end.
// RUN: pc-opt %t.placed --pc-localize --pc-verify-local --pc-fuse --pc-schedule --pc-verify-scheduled --pc-plan-memory --pc-verify-memory --pc-verify-scheduled -o %t.planned
// RUN: FileCheck %s --check-prefix=PLANNED < %t.planned
// RUN: pc-equal %t.step %t.planned
// PLANNED: pc.arena {{[0-9]+}} disk 8192
// PLANNED: pc.state "exp_avg" of "w" {{.*}} : tensor<8x8xf32, #pc.home<disk, {{[0-9]+}}>>
// PLANNED: pc.accumulate
// PLANNED: pc.start {{.*}} {
// PLANNED: pc.carry {{.*}} : (tensor<8x8xf32, #pc.space<disk>>) -> tensor<8x8xf32>
// PLANNED: pc.wait {{.*}} : tensor<8x8xf32, #pc.home<{{[0-9]+}}>>
// PLANNED: pc.carry {{.*}} : (tensor<8x8xf32>) -> tensor<8x8xf32, #pc.space<disk>>
// PLANNED: pc.wait {{.*}} : tensor<8x8xf32, #pc.home<disk, {{[0-9]+}}>>

// Each pass carries a parameter in before it gathers it, and so does the optimizer; its new value goes back. Memory of the host is another space.
// RUN: pc-opt %s --pc-differentiate=optimizer=sgd -o %t.sgd
// RUN: pc-opt %t.sgd --pc-set-mesh=mesh=dp=2 --pc-zero=stage=3 --pc-offload="what=parameters to=host" --pc-verify-placed -o %t.parameters
// RUN: FileCheck %s --check-prefix=PARAMETERS < %t.parameters
// RUN: %same-step %t.sgd %t.parameters
// PARAMETERS: %[[W:.*]] = pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[dp, _] in host>>
// PARAMETERS: pc.accumulate
// PARAMETERS: %[[FORWARD:.*]] = pc.carry %[[W]]
// PARAMETERS-NEXT: %[[COPY:.*]] = pc.copy %[[FORWARD]]
// PARAMETERS-NEXT: pc.all_gather %[[COPY]]
// PARAMETERS: pc.seed
// PARAMETERS: %[[BACKWARD:.*]] = pc.carry %[[W]]
// PARAMETERS-NEXT: %[[COPY:.*]] = pc.copy %[[BACKWARD]]
// PARAMETERS-NEXT: pc.all_gather %[[COPY]]
// PARAMETERS: %[[OPTIMIZER:.*]] = pc.carry %[[W]]
// PARAMETERS: %[[NEW:.*]] = pc.sgd %[[OPTIMIZER]]
// PARAMETERS: %[[BACK:.*]] = pc.carry %[[NEW]]
// PARAMETERS-NEXT: pc.update "w" %[[BACK]]
// RUN: pc-opt %t.parameters --pc-localize --pc-verify-local --pc-fuse --pc-schedule --pc-verify-scheduled --pc-plan-memory --pc-verify-memory --pc-verify-scheduled -o %t.planned
// RUN: FileCheck %s --check-prefix=HOME < %t.planned
// RUN: pc-equal %t.sgd %t.planned
// HOME: pc.arena {{[0-9]+}} host 512
// HOME: pc.parameter "w" {{.*}} : tensor<8x8xf32, #pc.home<host, 0>>

// Masters are carried in twice: to round them before both passes, and for the update.
// RUN: pc-opt %s --pc-differentiate=optimizer=sgd --pc-mixed-precision=tables=bf16 -o %t.bf16
// RUN: pc-opt %t.bf16 --pc-set-mesh --pc-offload=what=masters --pc-verify-placed -o %t.masters
// RUN: FileCheck %s --check-prefix=MASTERS < %t.masters
// RUN: %same-step %t.bf16 %t.masters
// MASTERS: %[[W:.*]] = pc.parameter "w" {{.*}} in disk>>
// MASTERS: %[[HERE:.*]] = pc.carry %[[W]]
// MASTERS-NEXT: pc.cast %[[HERE]]
// MASTERS: pc.accumulate
// MASTERS-NOT: pc.carry
// MASTERS: pc.yield
// MASTERS: pc.carry %[[W]]
// MASTERS: pc.sgd

// With match, only the states of some parameters leave, and the pass may run again for the others. keep leaves the first
// values of so many bytes per rank: with ZeRO-1 on two ranks, a state has 256.
// RUN: pc-opt %s --pc-differentiate=optimizer=adamw --pc-set-mesh=mesh=dp=2 --pc-zero=stage=1 --pc-offload=keep=511 --pc-verify-placed -o %t.keep
// RUN: FileCheck %s --check-prefix=KEEP < %t.keep
// RUN: %same-step %t.step %t.keep
// KEEP: pc.state "exp_avg" of "w" {{.*}} : tensor<16x8xf32, #pc.place<[dp, _]>>
// KEEP: pc.state "exp_avg_sq" of "w" {{.*}} : tensor<16x8xf32, #pc.place<[dp, _] in disk>>
// RUN: not pc-opt %s --pc-differentiate=optimizer=adamw --pc-set-mesh --pc-offload=match=v 2>&1 | FileCheck %s --check-prefix=UNMATCHED
// UNMATCHED: pc-offload: match: 'v' fits no parameter, whose names are such as 'w' and 'w'
// RUN: not pc-opt %s --pc-differentiate=optimizer=adamw --pc-set-mesh --pc-offload="what=activations match=w" 2>&1 | FileCheck %s --check-prefix=NAMELESS
// NAMELESS: pc-offload: match names parameters, and activations belong to none; use keep=BYTES to keep some on the device
// RUN: not pc-opt %s --pc-differentiate=optimizer=adamw --pc-set-mesh --pc-offload=keep=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: pc-offload: keep: -1 bytes; expected at least 0

// RUN: not pc-opt %s --pc-differentiate=optimizer=adamw --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-offload=to=tape 2>&1 | FileCheck %s --check-prefix=SPACE
// SPACE: pc-offload: cannot keep states on 'tape'; expected host or disk
// RUN: not pc-opt %s --pc-differentiate=optimizer=adamw --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-offload=what=inputs 2>&1 | FileCheck %s --check-prefix=KIND
// KIND: pc-offload: cannot keep 'inputs' elsewhere; expected states, masters, parameters or activations
// RUN: not pc-opt %t.placed --pc-offload 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: pc-offload: {{.*}} is not on the device already; name each kind of value once
// RUN: not pc-opt %s --pc-differentiate --pc-offload 2>&1 | FileCheck %s --check-prefix=UNPLACED
// UNPLACED: pc-offload: the program must be placed; run the pass after pc-set-mesh and the other tactics
// RUN: not pc-opt %s --pc-differentiate=optimizer=sgd --pc-set-mesh --pc-offload 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: pc-offload: this program has no optimizer states, so none can be kept on disk
// RUN: not pc-opt %s --pc-differentiate=optimizer=sgd --pc-set-mesh --pc-offload=what=masters 2>&1 | FileCheck %s --check-prefix=PLAIN
// PLAIN: pc-offload: this program has no f32 masters of rounded parameters, so none can be kept on disk
// RUN: not pc-opt %s --pc-differentiate=optimizer=sgd --pc-set-mesh --pc-offload=what=activations 2>&1 | FileCheck %s --check-prefix=SMALL
// SMALL: pc-offload: no layer keeps a value of a block or more for the backward pass, apart from the last layer, so no activation can be kept on disk

pc.program "table" batch 4 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x8xi32>
  %x = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %y = pc.einsum "b s e, v e -> b s v" %x, %w : (tensor<4x8x8xf32>, tensor<16x8xf32>) -> tensor<4x8x16xf32>
  %nll = pc.cross_entropy %y, %targets : (tensor<4x8x16xf32>, tensor<4x8xi32>) -> tensor<4x8xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<4x8xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 0.03125 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
