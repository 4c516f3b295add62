"""Llamas as users write them: rotary embeddings by real pairs, complex numbers and rotated halves."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from .gpt import E, H, L, S, V, tokens


# -- 3. llama2.c: own RMSNorm, rotary by real pairs from buffers, repeat_kv, SwiGLU ------------------------------------
class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def precompute(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim))
    freqs = torch.outer(torch.arange(end), freqs).float()
    return torch.cos(freqs), torch.sin(freqs)


def apply_rotary(xq, xk, cos, sin):
    xq_r, xq_i = xq.float().reshape(xq.shape[:-1] + (-1, 2)).unbind(-1)
    xk_r, xk_i = xk.float().reshape(xk.shape[:-1] + (-1, 2)).unbind(-1)
    cos = cos.view(1, cos.shape[0], 1, cos.shape[1])
    sin = sin.view(1, sin.shape[0], 1, sin.shape[1])
    q = torch.stack([xq_r * cos - xq_i * sin, xq_r * sin + xq_i * cos], dim=-1).flatten(3)
    k = torch.stack([xk_r * cos - xk_i * sin, xk_r * sin + xk_i * cos], dim=-1).flatten(3)
    return q.type_as(xq), k.type_as(xk)


def repeat_kv(x, n):
    bs, slen, n_kv, d = x.shape
    if n == 1:
        return x
    return x[:, :, :, None, :].expand(bs, slen, n_kv, n, d).reshape(bs, slen, n_kv * n, d)


class LlamaAttention(nn.Module):
    def __init__(self, kv=2):
        super().__init__()
        self.kv, self.d = kv, E // H
        self.wq = nn.Linear(E, H * self.d, bias=False)
        self.wk = nn.Linear(E, kv * self.d, bias=False)
        self.wv = nn.Linear(E, kv * self.d, bias=False)
        self.wo = nn.Linear(H * self.d, E, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        q = q.view(b, s, H, self.d)
        k = k.view(b, s, self.kv, self.d)
        v = v.view(b, s, self.kv, self.d)
        q, k = apply_rotary(q, k, cos, sin)
        k, v = repeat_kv(k, H // self.kv), repeat_kv(v, H // self.kv)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=None, is_causal=True)
        return self.wo(o.transpose(1, 2).contiguous().view(b, s, -1))


class LlamaFF(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.w1 = nn.Linear(E, hidden, bias=False)
        self.w2 = nn.Linear(hidden, E, bias=False)
        self.w3 = nn.Linear(E, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class LlamaBlock(nn.Module):
    def __init__(self, kv):
        super().__init__()
        self.attention = LlamaAttention(kv)
        self.feed_forward = LlamaFF()
        self.attention_norm = RMSNorm(E)
        self.ffn_norm = RMSNorm(E)

    def forward(self, x, cos, sin):
        h = x + self.attention(self.attention_norm(x), cos, sin)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama2c(nn.Module):
    def __init__(self, kv=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(V, E)
        self.layers = nn.ModuleList([LlamaBlock(kv) for _ in range(L)])
        self.norm = RMSNorm(E)
        self.output = nn.Linear(E, V, bias=False)
        self.tok_embeddings.weight = self.output.weight
        cos, sin = precompute(E // H, 2 * S)
        self.register_buffer("freqs_cos", cos, persistent=False)
        self.register_buffer("freqs_sin", sin, persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        _, s = tokens.shape
        h = self.tok_embeddings(tokens)
        cos, sin = self.freqs_cos[:s], self.freqs_sin[:s]
        for layer in self.layers:
            h = layer(h, cos, sin)
        logits = self.output(self.norm(h))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def build_llama2c():
    return Llama2c(), dict(tokens=tokens(), targets=tokens())


# -- 4. Meta's llama: complex rotary, and halves rotated (rotate_half) in a second variant -----------------------------
class ComplexLlama(Llama2c):
    def __init__(self, half=False):
        super().__init__()
        self.half = half
        d = E // H
        freqs = 1.0 / (500000.0 ** (torch.arange(0, d, 2).float() / d))
        self.register_buffer("angles", torch.outer(torch.arange(2 * S).float(), freqs), persistent=False)

    def rotate(self, x, angles):
        if self.half:
            cos = torch.cat([angles, angles], -1).cos()[None, :, None]
            sin = torch.cat([angles, angles], -1).sin()[None, :, None]
            x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
            return x * cos + torch.cat((-x2, x1), -1) * sin
        cis = torch.polar(torch.ones_like(angles), angles)[None, :, None]
        return torch.view_as_real(torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * cis).flatten(3)

    def forward(self, tokens, targets):
        b, s = tokens.shape
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            a, x = layer.attention, layer.attention_norm(h)
            q = self.rotate(a.wq(x).view(b, s, H, a.d), self.angles[:s]).transpose(1, 2)
            k = self.rotate(a.wk(x).view(b, s, a.kv, a.d), self.angles[:s]).transpose(1, 2)
            v = a.wv(x).view(b, s, a.kv, a.d).transpose(1, 2)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            h = h + a.wo(o.transpose(1, 2).reshape(b, s, -1))
            h = h + layer.feed_forward(layer.ffn_norm(h))
        logits = self.output(self.norm(h))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_llama_complex():
    return ComplexLlama(), dict(tokens=tokens(), targets=tokens())


def build_llama_half():
    return ComplexLlama(half=True), dict(tokens=tokens(), targets=tokens())
