// RUN: pc-opt %s --verify-roundtrip | FileCheck %s

pc.mesh <dp = 2, tp = 2>

// Two linear layers with data and tensor parallelism need one move.
// CHECK-LABEL: func.func @mlp
func.func @mlp() {
  %x = pc.input tokens dims ["batch", "sequence"] : tensor<8x32xi32, #pc.place<[dp, _]>>
  %e = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"wte.weight", shape = [96, 64], start = [0, 0], size = [96, 64]> : tensor<96x64xf32, #pc.place<[_, _]>>
  %h = pc.embedding %e, %x : (tensor<96x64xf32, #pc.place<[_, _]>>, tensor<8x32xi32, #pc.place<[dp, _]>>) -> tensor<8x32x64xf32, #pc.place<[dp, _, _]>>
  %w1 = pc.parameter "w1" dims ["embed", "ffn"] init <normal, 2.0e-02>
    source <"w1", shape = [64, 256], start = [0, 0], size = [64, 256]> : tensor<64x256xf32, #pc.place<[_, tp]>>
  // CHECK: pc.einsum "b s e, e f -> b s f"
  %u = pc.einsum "b s e, e f -> b s f" %h, %w1 : (tensor<8x32x64xf32, #pc.place<[dp, _, _]>>, tensor<64x256xf32, #pc.place<[_, tp]>>) -> tensor<8x32x256xf32, #pc.place<[dp, _, tp]>>
  %g = pc.activation gelu_tanh %u : (tensor<8x32x256xf32, #pc.place<[dp, _, tp]>>) -> tensor<8x32x256xf32, #pc.place<[dp, _, tp]>>
  %w2 = pc.parameter "w2" dims ["ffn", "embed"] init <normal, 2.0e-02>
    source <"w2", shape = [256, 64], start = [0, 0], size = [256, 64]> : tensor<256x64xf32, #pc.place<[tp, _]>>
  %p = pc.einsum "b s f, f e -> b s e" %g, %w2 : (tensor<8x32x256xf32, #pc.place<[dp, _, tp]>>, tensor<256x64xf32, #pc.place<[tp, _]>>) -> tensor<8x32x64xf32, #pc.place<[dp, _, _] sum(tp)>>
  // CHECK: pc.all_reduce sum
  %y = pc.all_reduce sum %p on ["tp"] : (tensor<8x32x64xf32, #pc.place<[dp, _, _] sum(tp)>>) -> tensor<8x32x64xf32, #pc.place<[dp, _, _]>>
  return
}

// A bucket starts two moves, and one wait ends them.
// CHECK-LABEL: func.func @bucket
func.func @bucket(%x: tensor<8xf32>, %y: tensor<4xf32>) {
  // CHECK: %[[T:.*]] = pc.start (%{{.*}} = %{{.*}} : tensor<8xf32> -> tensor<8xf32>, %{{.*}} = %{{.*}} : tensor<4xf32> -> tensor<4xf32>) {
  // CHECK-NEXT: pc.all_reduce sum
  // CHECK-NEXT: pc.all_gather
  // CHECK-NEXT: pc.yield
  // CHECK-NEXT: } : !pc.ticket
  %t = pc.start (%a = %x : tensor<8xf32> -> tensor<8xf32>, %b = %y : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.all_reduce sum %a on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
    %1 = pc.all_gather %b dim 0 on ["dp"] : (tensor<4xf32>) -> tensor<8xf32>
    pc.yield %0, %1 : tensor<8xf32>, tensor<8xf32>
  } : !pc.ticket
  // CHECK: pc.wait %[[T]] : tensor<8xf32>, tensor<8xf32>
  %z:2 = pc.wait %t : tensor<8xf32>, tensor<8xf32>
  return
}

// One of two stages receives, computes, and sends.
// CHECK-LABEL: func.func @stage
func.func @stage(%s: tensor<2x8x64xf32, #pc.place<[_, dp, _]>>, %l: tensor<f32, #pc.place<[]>>) {
  // CHECK: pc.task forward chunk 1 microbatch 0
  pc.task forward chunk 1 microbatch 0
  // CHECK: pc.receive from 0 flow 2 message 0 slots 2 : tensor<8x64xf32
  %x = pc.receive from 0 flow 2 message 0 slots 2 : tensor<8x64xf32, #pc.place<[dp, _]>>
  // CHECK: pc.microbatch %{{.*}}[1] : tensor<2x8x64xf32, {{.*}}> -> tensor<8x64xf32
  %m = pc.microbatch %s[1] : tensor<2x8x64xf32, #pc.place<[_, dp, _]>> -> tensor<8x64xf32, #pc.place<[dp, _]>>
  %y = pc.add %x, %m : (tensor<8x64xf32, #pc.place<[dp, _]>>, tensor<8x64xf32, #pc.place<[dp, _]>>) -> tensor<8x64xf32, #pc.place<[dp, _]>>
  // CHECK: pc.send %{{.*}} to 0 flow 3 message 0 slots 2 : tensor<8x64xf32
  pc.send %y to 0 flow 3 message 0 slots 2 : tensor<8x64xf32, #pc.place<[dp, _]>>
  // CHECK: pc.task optimizer
  pc.task optimizer
  // CHECK: pc.addend %{{.*}} on ["tp"]
  %a = pc.addend %l on ["tp"] : (tensor<f32, #pc.place<[]>>) -> tensor<f32, #pc.place<[] sum(tp)>>
  return
}

func.func private @task(%x: tensor<8xf32, #pc.home<64>>) -> tensor<8xf32, #pc.home<128>> {
  %y = pc.scale %x by 2.0 : (tensor<8xf32, #pc.home<64>>) -> tensor<8xf32, #pc.home<128>>
  return %y : tensor<8xf32, #pc.home<128>>
}
// CHECK-LABEL: func.func @calls
func.func @calls(%x: tensor<8xf32, #pc.home<0>>) {
  // CHECK: pc.call @task(%{{.*}}) frame 64 : (tensor<8xf32, #pc.home<0>>) -> tensor<8xf32, #pc.home<192>>
  %y = pc.call @task(%x) frame 64 : (tensor<8xf32, #pc.home<0>>) -> tensor<8xf32, #pc.home<192>>
  return
}
