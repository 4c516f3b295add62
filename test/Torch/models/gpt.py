"""GPTs as users write them, with variations."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

B, S, V, E, H, L = 8, 16, 96, 32, 4, 2


def tokens(n=V, s=S):
    return torch.randint(0, n, (B, s))


# -- 1. nanoGPT's GPT (karpathy/nanoGPT style): SDPA, c_attn split, tied weights, learned positions -------------------
class NanoLN(nn.Module):
    def __init__(self, n, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.bias = nn.Parameter(torch.zeros(n)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class NanoAttention(nn.Module):
    def __init__(self, p, bias=True):
        super().__init__()
        self.c_attn = nn.Linear(E, 3 * E, bias=bias)
        self.c_proj = nn.Linear(E, E, bias=bias)
        self.resid_dropout = nn.Dropout(p)
        self.p = p

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, H, C // H).transpose(1, 2)
        q = q.view(B, T, H, C // H).transpose(1, 2)
        v = v.view(B, T, H, C // H).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=self.p if self.training else 0, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class NanoMLP(nn.Module):
    def __init__(self, p, bias=True):
        super().__init__()
        self.c_fc = nn.Linear(E, 4 * E, bias=bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * E, E, bias=bias)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class NanoBlock(nn.Module):
    def __init__(self, p, bias):
        super().__init__()
        self.ln_1 = NanoLN(E, bias)
        self.attn = NanoAttention(p, bias)
        self.ln_2 = NanoLN(E, bias)
        self.mlp = NanoMLP(p, bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    def __init__(self, p=0.0, bias=True):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(V, E),
                wpe=nn.Embedding(2 * S, E),
                drop=nn.Dropout(p),
                h=nn.ModuleList([NanoBlock(p, bias) for _ in range(L)]),
                ln_f=NanoLN(E, bias),
            )
        )
        self.lm_head = nn.Linear(E, V, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)
            if isinstance(m, nn.Linear) and m.bias is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        logits = self.lm_head(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


def build_nanogpt():
    return NanoGPT(), dict(idx=tokens(), targets=tokens())


def build_nanogpt_nobias():
    return NanoGPT(bias=False), dict(idx=tokens(), targets=tokens())


def build_nanogpt_dropout():
    return NanoGPT(0.1), dict(idx=tokens(), targets=tokens())


# -- 2. minGPT: masks as buffers, softmax written out, gelu by hand ---------------------------------------------------
class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class MinAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(E, 3 * E)
        self.c_proj = nn.Linear(E, E)
        self.attn_dropout = nn.Dropout(0.0)
        self.register_buffer("bias", torch.tril(torch.ones(2 * S, 2 * S)).view(1, 1, 2 * S, 2 * S))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, H, C // H).transpose(1, 2)
        q = q.view(B, T, H, C // H).transpose(1, 2)
        v = v.view(B, T, H, C // H).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class MinBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(E)
        self.attn = MinAttention()
        self.ln_2 = nn.LayerNorm(E)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(E, 4 * E), c_proj=nn.Linear(4 * E, E), act=NewGELU()))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m.c_proj(m.act(m.c_fc(self.ln_2(x))))


class MinGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(V, E)
        self.wpe = nn.Embedding(2 * S, E)
        self.h = nn.ModuleList([MinBlock() for _ in range(L)])
        self.ln_f = nn.LayerNorm(E)
        self.lm_head = nn.Linear(E, V, bias=False)

    def forward(self, idx, targets):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long).unsqueeze(0)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def build_mingpt():
    return MinGPT(), dict(idx=tokens(), targets=tokens())


# -- 13. LoRA on nanoGPT: frozen base ----------------------------------------------------------------------------------------------
class LoraLinear(nn.Module):
    def __init__(self, base, r=4):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(r, base.in_features) * 0.02)
        self.b = nn.Parameter(torch.randn(base.out_features, r) * 0.02)

    def forward(self, x):
        return self.base(x) + (x @ self.a.T) @ self.b.T * 2.0


def build_lora():
    m = NanoGPT()
    for p in m.parameters():
        p.requires_grad_(False)
    for b in m.transformer.h:
        b.attn.c_proj = LoraLinear(b.attn.c_proj)
        b.mlp.c_fc = LoraLinear(b.mlp.c_fc)
    return m, dict(idx=tokens(), targets=tokens())


# -- 14. z-loss, label smoothing, a custom loss -----------------------------------------------------------------------------------
class CustomLoss(NanoGPT):
    def forward(self, idx, targets):
        b, t = idx.size()
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(t))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        logp = F.log_softmax(logits, -1)
        nll = -logp.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        z = torch.logsumexp(logits, -1)
        return nll.mean() + 1e-2 * z.square().mean()


def build_customloss():
    return CustomLoss(), dict(idx=tokens(), targets=tokens())


# -- 15. a loss that is not a mean over the batch, so microbatches change it
# ---------------------------------------------------------------
class SquaredLoss(NanoGPT):
    def forward(self, idx, targets):
        return super().forward(idx, targets)[1].square()


def build_squaredloss():
    return SquaredLoss(), dict(idx=tokens(), targets=tokens())


# -- 16. blocks outside of a list, and one class used three times
# ---------------------------------------------------------------------------
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pos = nn.Embedding(V, E), nn.Embedding(S, E)
        self.first, self.second, self.third = NanoBlock(0.0, True), NanoBlock(0.0, True), NanoBlock(0.0, True)
        self.norm, self.head = nn.LayerNorm(E), nn.Linear(E, V)

    def forward(self, ids, targets):
        x = self.embed(ids) + self.pos(torch.arange(ids.shape[1]))
        x = self.third(self.second(self.first(x)))
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def build_named():
    return Named(), dict(ids=tokens(), targets=tokens())


# -- 17. a sum over tokens in front of what is not linear: a causal convolution in front of attention ----------------------------------
class ConvGPT(NanoGPT):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(E, E, 3, padding=2)

    def forward(self, idx, targets):
        b, t = idx.size()
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(t))
        x = x + self.conv(x.transpose(1, 2))[:, :, :t].transpose(1, 2)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_convgpt():
    return ConvGPT(), dict(idx=tokens(), targets=tokens())


# -- 18. mixture of experts, as a user writes it with a loop over experts -----------------------------------------------------------------
class LoopMoE(nn.Module):
    def __init__(self, n=4, k=2):
        super().__init__()
        self.k, self.gate = k, nn.Linear(E, n, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(E, 64), nn.GELU(), nn.Linear(64, E)) for _ in range(n)])

    def forward(self, x):
        w, chosen = torch.topk(F.softmax(self.gate(x), -1), self.k, -1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):  # all tokens through all experts, weights 0 where not chosen
            share = (w * (chosen == i)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        return out


class SparseMoE(LoopMoE):
    def forward(self, x):
        flat = x.reshape(-1, E)
        w, chosen = torch.topk(F.softmax(self.gate(flat), -1), self.k, -1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):  # tokens that chose it alone: a size that depends on data
            token, nth = torch.where(chosen == i)
            out = out.index_add(0, token, expert(flat[token]) * w[token, nth, None])
        return out.view_as(x)


class MoEGPT(NanoGPT):
    def __init__(self, kind):
        super().__init__()
        for b in self.transformer.h:
            b.mlp = kind()


def build_moe_dense():
    return MoEGPT(LoopMoE), dict(idx=tokens(), targets=tokens())


def build_moe_sparse():
    return MoEGPT(SparseMoE), dict(idx=tokens(), targets=tokens())
