"""One example of each command, and the files that they read; needs nothing but the standard library."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "runs.csv": """\
gpu,op,batch,m,n,k,dtype,acc_dtype,layout,sparsity,time_us,method,l2,load,kernel,source
t4,linear,1,4096,1,4096,fp16,fp32,tn,dense,130.0,graph,cold,burst,,made up
t4,linear,1,8192,1,4096,fp16,fp32,tn,dense,260.0,graph,cold,burst,,made up
t4,linear,1,16384,1,4096,fp16,fp32,tn,dense,525.0,graph,cold,burst,,made up
""",
    "counted.csv": """\
gpu,op,batch,m,n,k,dtype,layout,sparsity,time_us,method,l2,dram__bytes_read.sum
t4,linear,1,512,512,512,fp16,tn,dense,20.0,profiler,cold,1100000
""",
    "config.json": """\
{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 128}
""",
    "module.py": """\
import torch


def model():
    return torch.nn.Linear(256, 128)


def inputs(batch):
    return torch.zeros(batch, 256)
""",
}
SIZES = "-m 512 -n 512 -k 256"
COMMANDS = {
    "gemm": f"gemm --arch t4 {SIZES}",
    "attention": "attention --arch a100-sxm4-40gb --heads 4 --queries 512 --head-dim 64",
    "trace": f"trace --arch t4 {SIZES} -o trace.json",
    "numerics": f"numerics --dtype tf32 {SIZES}",
    "model": "model resnet50 --arch a100-sxm4-40gb --mode inference --precision fp16 --batch 4",
    "compare": "compare gemm:512x512x256:fp16 --archs t4,a100-sxm4-40gb",
    "explain": "explain gemm:512x512x256:fp16 --arch t4 --to a100-sxm4-40gb",
    "run": "run worked_example -o out",
    "validate": "validate runs.csv",
    "microbench": "microbench launch --arch t4",
    "mathmode": "mathmode --framework pytorch --version 1.13 --op matmul --dtype fp32 --arch a100-sxm4-40gb",
    "calibrate": "calibrate --arch t4 --measured runs.csv --rows 3 --date 2026-01-01 -o fitted.yaml",
    "import": "import csv runs.csv --map m=m,n=n,k=k,time_us=time_us --gpu t4 -o imported.csv",
    "capture": "capture module.py -o module.yaml",
    "measure": "measure quick --plan",
    "counters": "counters counted.csv",
    "archs list": "archs list",
    "archs show": "archs show t4",
    "archs diff": "archs diff t4 a10",
    "archs new": "archs new mine --like t4",
    "archs check": "archs check fitted.yaml",
    "archs schema": "archs schema",
    "schema": "schema experiment",
    "serve": "serve --port 0 --no-open",
    "models list": "models list",
    "models new": "models new --from config.json -o new_model.yaml",
    "models show": "models show bert_base",
    "nodes list": "nodes list",
    "nodes show": "nodes show dgx-a100",
    "nodes time": "nodes time dgx-a100 --op all_reduce --gpus 8",
    "kernels list": "kernels list --arch t4",
    "cache compile": "cache compile",
    "cache info": "cache info",
    "cache verify": "cache verify",
    "cache clear": "cache clear",
}
"""Arguments by command, in an order in which each finds what an earlier one wrote."""


def write_files(folder: Path) -> None:
    """Write the files that the examples read."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
