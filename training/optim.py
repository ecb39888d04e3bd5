"""Muon (Jordan et al., 2024): momentum whose matrix is made orthogonal by Newton-Schulz steps before it is applied."""
import torch


def orthogonalize(g):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall: x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return x.mT if tall else x


class Muon:
    """Matrices of one shape are stepped together."""

    def __init__(self, parameters, rate, decay=0.01):
        self.rate, self.decay, self.groups = rate, decay, {}
        for p in parameters: self.groups.setdefault(tuple(p.shape), []).append(p)
        self.momentum = {s: torch.zeros(len(g), *s, device=g[0].device) for s, g in self.groups.items()}
        on_gpu = next(iter(self.momentum.values())).is_cuda
        self.orthogonalize = torch.compile(orthogonalize) if on_gpu else orthogonalize

    @torch.no_grad()
    def step(self, share, momentum):
        rate = self.rate * share
        for shape, group in self.groups.items():
            g = torch.stack([p.grad for p in group])
            m = self.momentum[shape].lerp_(g, 1 - momentum)
            u = self.orthogonalize(g.lerp(m, momentum)).float() * max(1, shape[0] / shape[1]) ** 0.5
            for p, step in zip(group, u): p.mul_(1 - rate * self.decay).add_(step, alpha=-rate)


class Optimizer:
    """Muon for the matrices, Adam for embedding and norms."""

    def __init__(self, net, adam_rate):
        is_matrix = lambda name, p: p.ndim == 2 and "embed" not in name
        self.others = [p for n, p in net.named_parameters() if not is_matrix(n, p)]
        self.muon = Muon([p for n, p in net.named_parameters() if is_matrix(n, p)], 0.02)
        self.adam = torch.optim.AdamW(self.others, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0,
                                      fused=self.others[0].is_cuda)
        self.net, self.adam_rate, self.steps = net, adam_rate, 0

    def step(self, share):
        """One step at that share of the full learning rate; gradients are gone afterwards."""
        torch.nn.utils.clip_grad_norm_(self.others, 1.0)
        self.muon.step(share, min(0.95, 0.85 + self.steps / 3000))
        self.adam.param_groups[0]["lr"] = self.adam_rate * share
        self.adam.step()
        self.net.zero_grad(set_to_none=True)
        self.steps += 1
