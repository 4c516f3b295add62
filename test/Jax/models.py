"""Models in plain JAX, Flax (nnx and linen) and Equinox, as their users write them: each function returns (loss, params, inputs)."""
import jax
import jax.numpy as jnp
import numpy as np

V, T, C, H, N, B = 96, 16, 32, 2, 2, 8


def examples():
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, V, (B, T), dtype=np.int32) for name in ("idx", "targets")}


def plain():
    """nanoGPT with functions and a dict."""
    rng = np.random.default_rng(1)
    normal = lambda *shape: jnp.asarray(0.1 * rng.standard_normal(shape), jnp.float32)
    linear = lambda i, o: {"kernel": normal(i, o), "bias": normal(o)}
    norm = lambda: {"scale": 1 + normal(C), "bias": normal(C)}
    block = lambda: {"ln_1": norm(), "attn": {"c_attn": linear(C, 3 * C), "c_proj": linear(C, C)}, "ln_2": norm(),
                     "mlp": {"c_fc": linear(C, 4 * C), "c_proj": linear(4 * C, C)}}
    params = {"wte": normal(V, C), "wpe": normal(T, C), "h": [block() for _ in range(N)], "ln_f": norm()}

    def layer_norm(p, x):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]

    def dense(p, x):
        return x @ p["kernel"] + p["bias"]

    def attention(p, x):
        b, t, c = x.shape
        q, k, v = (y.reshape(b, t, H, c // H).transpose(0, 2, 1, 3) for y in jnp.split(dense(p["c_attn"], x), 3, axis=-1))
        scores = q @ k.transpose(0, 1, 3, 2) / (c // H) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        y = jax.nn.softmax(scores, axis=-1) @ v
        return dense(p["c_proj"], y.transpose(0, 2, 1, 3).reshape(b, t, c))

    def loss(params, idx, targets):
        x = params["wte"][idx] + params["wpe"][jnp.arange(idx.shape[1])]
        for p in params["h"]:
            x = x + attention(p["attn"], layer_norm(p["ln_1"], x))
            x = x + dense(p["mlp"]["c_proj"], jax.nn.gelu(dense(p["mlp"]["c_fc"], layer_norm(p["ln_2"], x))))
        logits = layer_norm(params["ln_f"], x) @ params["wte"].T
        logs = jax.nn.log_softmax(logits, axis=-1)
        return -jnp.take_along_axis(logs, targets[..., None], axis=-1).mean()

    return loss, params, examples()


def linen():
    """Flax linen with its own modules; blocks without names."""
    import optax
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, mask):
            x = x + nn.MultiHeadDotProductAttention(num_heads=H)(nn.LayerNorm()(x), mask=mask)
            return x + nn.Dense(C)(nn.gelu(nn.Dense(4 * C)(nn.LayerNorm()(x))))

    class GPT(nn.Module):
        @nn.compact
        def __call__(self, idx):
            x = nn.Embed(V, C)(idx) + nn.Embed(T, C)(jnp.arange(idx.shape[1])[None])
            for _ in range(N):
                x = Block()(x, nn.make_causal_mask(idx))
            return nn.Dense(V, use_bias=False)(nn.LayerNorm()(x))

    model, inputs = GPT(), examples()

    def loss(params, idx, targets):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, idx), targets).mean()

    return loss, model.init(jax.random.key(0), inputs["idx"]), inputs


def nnx():
    """Flax nnx: a tied head, jax.nn.dot_product_attention, dropout that is off."""
    import optax
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.ln_1, self.ln_2 = nnx.LayerNorm(C, rngs=rngs), nnx.LayerNorm(C, rngs=rngs)
            self.attn, self.proj = nnx.Linear(C, 3 * C, rngs=rngs), nnx.Linear(C, C, rngs=rngs)
            self.up, self.down = nnx.Linear(C, 4 * C, rngs=rngs), nnx.Linear(4 * C, C, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, deterministic=True, rngs=rngs)

        def __call__(self, x):
            b, t, c = x.shape
            q, k, v = (y.reshape(b, t, H, c // H) for y in jnp.split(self.attn(self.ln_1(x)), 3, axis=-1))
            x = x + self.dropout(self.proj(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, c)))
            return x + self.dropout(self.down(nnx.gelu(self.up(self.ln_2(x)))))

    class GPT(nnx.Module):
        def __init__(self, rngs):
            self.wte, self.wpe = nnx.Embed(V, C, rngs=rngs), nnx.Embed(T, C, rngs=rngs)
            self.h = nnx.List([Block(rngs) for _ in range(N)])
            self.ln_f = nnx.LayerNorm(C, rngs=rngs)

        def __call__(self, idx):
            x = self.wte(idx) + self.wpe(jnp.arange(idx.shape[1]))
            for block in self.h:
                x = block(x)
            return self.wte.attend(self.ln_f(x))

    def loss(model, idx, targets):
        return optax.softmax_cross_entropy_with_integer_labels(model(idx), targets).mean()

    return loss, GPT(nnx.Rngs(0)), examples()


def equinox():
    """Equinox: a model of one sample, vmapped in the loss; exact gelu, RMS norms."""
    import equinox as eqx

    class Block(eqx.Module):
        norm_1: eqx.nn.RMSNorm
        norm_2: eqx.nn.LayerNorm
        attn: eqx.nn.MultiheadAttention
        up: eqx.nn.Linear
        down: eqx.nn.Linear

        def __init__(self, key):
            keys = jax.random.split(key, 3)
            self.norm_1, self.norm_2 = eqx.nn.RMSNorm(C), eqx.nn.LayerNorm(C)
            self.attn = eqx.nn.MultiheadAttention(H, C, key=keys[0])
            self.up, self.down = eqx.nn.Linear(C, 4 * C, key=keys[1]), eqx.nn.Linear(4 * C, C, key=keys[2])

        def __call__(self, x):
            y = jax.vmap(self.norm_1)(x)
            x = x + self.attn(y, y, y, mask=jnp.tril(jnp.ones((len(x), len(x)), bool)))
            return x + jax.vmap(lambda z: self.down(jax.nn.gelu(self.up(self.norm_2(z)), approximate=False)))(x)

    class GPT(eqx.Module):
        wte: eqx.nn.Embedding
        wpe: jax.Array
        blocks: list
        head: eqx.nn.Linear

        def __init__(self, key):
            keys = jax.random.split(key, N + 3)
            self.wte, self.wpe = eqx.nn.Embedding(V, C, key=keys[0]), 0.02 * jax.random.normal(keys[1], (T, C))
            self.blocks = [Block(key) for key in keys[3:]]
            self.head = eqx.nn.Linear(C, V, use_bias=False, key=keys[2])

        def __call__(self, idx):
            x = jax.vmap(self.wte)(idx) + self.wpe
            for block in self.blocks:
                x = block(x)
            return jax.vmap(self.head)(x)

    def loss(model, idx, targets):
        logs = jax.nn.log_softmax(jax.vmap(model)(idx))
        return -jnp.mean(jnp.take_along_axis(logs, jnp.expand_dims(targets, -1), -1))

    return loss, GPT(jax.random.key(0)), examples()


def scanned():
    """Layers as entries of stacked parameters, by lax.scan, with jax.checkpoint; silu, and a loss of one-hot targets."""
    keys = jax.random.split(jax.random.key(0), 4)
    params = {"wte": 0.1 * jax.random.normal(keys[0], (V, C)), "up": 0.1 * jax.random.normal(keys[1], (N, C, 4 * C)),
              "down": 0.1 * jax.random.normal(keys[2], (N, 4 * C, C)), "head": 0.1 * jax.random.normal(keys[3], (C, V))}

    @jax.checkpoint
    def block(x, p):
        return x + jax.nn.silu(x @ p["up"]) @ p["down"], None

    def loss(params, idx, targets):
        x, _ = jax.lax.scan(block, params["wte"][idx], {"up": params["up"], "down": params["down"]})
        logits = x @ params["head"]
        picked = jnp.sum(jax.nn.one_hot(targets, V) * logits, axis=-1)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    return loss, params, examples()


def recurrent():
    """Scans over the sequence: a gated linear recurrence that reads the value before and after a step, one of two carried values that starts at a
    parameter, and running sums."""
    keys = iter(jax.random.split(jax.random.key(0), 4 + 4 * N))
    normal = lambda *shape: 0.1 * jax.random.normal(next(keys), shape)
    params = {"wte": normal(V, C), "head": normal(C, V), "start": normal(C), "rate": normal(C),
              "h": [{"gate": normal(C, C), "up": normal(C, C), "read": normal(C, C), "down": normal(C, C)} for _ in range(N)]}

    def block(p, x):
        def step(h, entry):
            gate, value, read = entry
            after = jax.nn.sigmoid(gate) * h + (1 - jax.nn.sigmoid(gate)) * value
            return after, after * read + 0.5 * h

        entries = tuple((x @ p[name]).transpose(1, 0, 2) for name in ("gate", "up", "read"))
        _, y = jax.lax.scan(step, jnp.zeros_like(x[:, 0]), entries)
        return x + jnp.tanh(y.transpose(1, 0, 2)) @ p["down"]

    def loss(params, idx, targets):
        x = params["wte"][idx]
        for p in params["h"]:
            x = block(p, x)

        def step(carry, entry):
            slow, last = carry
            return (jax.nn.sigmoid(params["rate"]) * slow + entry, entry), (slow, last)

        start = jnp.broadcast_to(params["start"], x[:, 0].shape)
        (slow, _), (before, last) = jax.lax.scan(step, (start, start), x.transpose(1, 0, 2))
        x = x + jnp.tanh(before + last).transpose(1, 0, 2) + 0.1 * jnp.cumsum(x, axis=1) + slow[:, None]
        logs = jax.nn.log_softmax(x @ params["head"])
        return -jnp.mean(jnp.take_along_axis(logs, targets[..., None], axis=-1))

    return loss, params, examples()
