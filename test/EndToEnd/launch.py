#!/usr/bin/env python3
"""usage: test/EndToEnd/launch.py

One pipeline (pp=2, dp=2) started in every way: by pc-run and with the environments of torchrun, srun and mpirun; PC_LONG=1: also by mpirun itself and
on two machines as far as the network is concerned: two network namespaces with a cable between them, over TCP and over MPI. Always the same
losses and gradients, bit by bit."""
import os
import subprocess

from cases import GOLDEN, LONG, MPI, Case

DATA = ["--data", GOLDEN / "gpt2/tokens.bin", "--init", GOLDEN / "gpt2", "--steps", 4, "--seed", 1, "--clip", 1.0, "--weight-decay", 0.1]
PORT, OURS = 20000 + os.getpid() % 10000, os.getpid()


def environment(launcher, rank):
    """What it sets for one of four ranks; two-machines: of two on each."""
    return {"torchrun": dict(RANK=rank, WORLD_SIZE=4, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=4, MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT),
            "srun": dict(SLURM_PROCID=rank, SLURM_STEP_NUM_TASKS=4, SLURM_LOCALID=rank, SLURM_STEP_NUM_NODES=1, SLURM_JOB_ID=OURS,
                         SLURM_STEP_ID=PORT),
            "mpirun": dict(OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_SIZE=4, OMPI_COMM_WORLD_LOCAL_RANK=rank,
                           OMPI_COMM_WORLD_LOCAL_SIZE=4, PMIX_NAMESPACE=OURS, OMPI_MCA_ess_base_jobid=PORT),
            "two-machines": dict(RANK=rank, WORLD_SIZE=4, LOCAL_RANK=rank % 2, LOCAL_WORLD_SIZE=2, MASTER_ADDR="10.213.8.1",
                                 MASTER_PORT=PORT)}[launcher]


class Launch(Case):
    def written(self, name):
        return ["--metrics", self.work / f"{name}.jsonl", "--dump-grads", self.work / f"{name}.safetensors"]

    def results(self, name):
        """Files of the last launch against those of pc-run."""
        self.compare(f"{name}: losses", "losses", "whole.jsonl", "last.jsonl", "--tolerance", 0)
        self.same(f"{name}: gradients", "whole.safetensors", "last.safetensors")
        for file in self.work.glob("last.*"):
            file.unlink()

    def each(self, name, launcher, machines=((), (), (), ()), **more):
        """Four processes of the environment, by hand; machines: what begins the command of each rank."""
        processes = [self.start(*machines[rank], "timeout", 60, "./train", *DATA, *self.written("last"), stderr=subprocess.STDOUT,
                                **{key: str(value) for key, value in environment(launcher, rank).items()}, **more) for rank in (3, 2, 1, 0)]
        said = [process.communicate()[0] for process in processes]
        if self.check(name, not any(process.returncode for process in processes), "\n".join(said)):
            self.results(name)

    def by_mpirun(self, name, *command, **more):
        if self.holds(name, *command, "./train", *DATA, *self.written("last"), seconds=90, **MPI, **more):
            self.results(name)

    def two_machines(self):
        one, two = f"pcl-{OURS}-1", f"pcl-{OURS}-2"
        setup = [f"netns add {one}", f"netns add {two}", f"link add pcl1 netns {one} type veth peer name pcl2 netns {two}"]
        for machine, name, address in ((one, "pcl1", "10.213.8.1"), (two, "pcl2", "10.213.8.2")):
            setup += [f"-n {machine} addr add {address}/24 dev {name}", f"-n {machine} link set {name} up", f"-n {machine} link set lo up"]
        try:
            if not all(subprocess.run(["ip", *line.split()], capture_output=True).returncode == 0 for line in setup):
                print("two network namespaces: not permitted here, not tested")
                return
            # Stages are on the outer axis: each machine is one.
            self.each("two machines, tcp", "two-machines", [["ip", "netns", "exec", one if rank < 2 else two] for rank in (0, 1, 2, 3)],
                      PCRT_TRANSPORT="tcp")
            # mpirun's way to another machine; a name of its own, or ranks would take it for this one.
            agent = self.work / "agent"
            agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {two} unshare --uts sh -c "hostname pcl-two; $*"\n')
            agent.chmod(0o755)
            self.by_mpirun("two machines, mpi", *f"ip netns exec {one} mpirun --host 10.213.8.1:2,10.213.8.2:2 -n 4 --map-by slot --mca btl tcp,self "
                           "--mca pml ob1 --mca btl_tcp_if_include 10.213.8.0/24 --mca oob_tcp_if_include 10.213.8.0/24 --mca plm_rsh_agent"
                           .split(), agent)
        finally:
            for machine in (one, two):
                subprocess.run(["ip", "netns", "del", machine], capture_output=True)

    def body(self):
        # Without AVX-512 the bits of oneDNN's products depend on how many threads cut them.
        self.environment = {"PCRT_TIMEOUT_SECONDS": "60", "PCRT_THREADS": "1"}
        self.needs("pc-compile", self.model(), "-o", "train", *"--mesh pp=2,dp=2 --microbatches=2 --pipeline=zb-h1 --zero=1".split())
        self.needs("pc-run", "-n", 4, "./train", *DATA, *self.written("whole"))
        self.each("torchrun's environment", "torchrun")
        self.each("torchrun's environment, tcp", "torchrun", PCRT_TRANSPORT="tcp")
        self.each("srun's environment", "srun")
        self.each("mpirun's environment", "mpirun")
        if not LONG:
            return
        if not subprocess.run(["which", "mpirun"], capture_output=True).returncode:
            for transport in ("shm", "mpi"):
                self.by_mpirun(f"mpirun, {transport}", "mpirun", "--oversubscribe", "-n", 4, PCRT_TRANSPORT=transport)
        self.two_machines()


launch = Launch("launch")
launch.run(launch.body)
