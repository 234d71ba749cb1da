# SPDX-License-Identifier: BSD-3-Clause
"""The demo's training script: data-parallel regression over gloo, one rank per GPU.

Each rank first takes *all* memory of its GPU: that works only if whoever was asked to
leave has really left.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from jupyter_gpubroker.devices.simulated import hold

DEVICE_MIB = 24 * 1024

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mine = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
hold(DEVICE_MIB, device=mine)
print(f"rank {rank} of {world} holds all of {mine}", flush=True)

torch.manual_seed(rank)
inputs = torch.randn(256, 8)
targets = inputs @ torch.arange(8.0).unsqueeze(1) + 1.0
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(20):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    if step % 5 == 0 or step == 19:
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        print(f"rank {rank} step {step} loss {mean.item() / world:.3f}", flush=True)
dist.barrier()  # nobody leaves while a peer still talks to it
dist.destroy_process_group()
